//! What was measured, as tables.

use super::{Cell, clients::VERBS};

/// The rates of one subject, by cell and verb, one for each round; operations per second.
pub struct Rates(Vec<Vec<Vec<f64>>>);

impl Rates {
    pub fn new(cells: usize) -> Self {
        Self(vec![vec![Vec::new(); VERBS.len()]; cells])
    }

    pub fn add(&mut self, cell: usize, verb: usize, rate: f64) {
        self.0[cell][verb].push(rate);
    }

    /// Round by round, this one's rate over the other's.
    fn shares(&self, other: &Self, cell: usize, verb: usize) -> Vec<f64> {
        self.0[cell][verb].iter().zip(&other.0[cell][verb]).map(|(one, other)| one / other).collect()
    }
}

/// Of sorted figures, the one at that part of the way.
fn at(figures: &[f64], part: f64) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(((sorted.len() - 1) as f64 * part).round() as usize).copied().unwrap_or(f64::NAN)
}

fn median(figures: &[f64]) -> f64 {
    at(figures, 0.5)
}

/// Medians of rates, in thousands per second.
pub fn print_rates(title: &str, cells: &[Cell], rates: &Rates) {
    print(title, cells, |cell, verb| format!("{:.1}", median(&rates.0[cell][verb]) / 1000.0));
}

/// Medians of the rounds' ratios, and their quartiles; below, the median over all cells and all verbs that ask.
pub fn print_shares(title: &str, cells: &[Cell], rates: &Rates, of: &Rates) {
    print(title, cells, |cell, verb| {
        let shares = rates.shares(of, cell, verb);
        format!("{:.2} {:.2}-{:.2}", median(&shares), at(&shares, 0.25), at(&shares, 0.75))
    });
    let each = |cell: usize| {
        let counts = (0..VERBS.len()).filter(|verb| VERBS[*verb].asks && !VERBS[*verb].silent);
        counts.map(move |verb| median(&rates.shares(of, cell, verb)))
    };
    let all: Vec<f64> = (0..cells.len()).flat_map(each).collect();
    println!("all: median {:.3}, from {:.2} to {:.2}", median(&all), at(&all, 0.0), at(&all, 1.0));
}

fn print(title: &str, cells: &[Cell], figure: impl Fn(usize, usize) -> String) {
    println!("\n{title}\n");
    let heads: String = cells.iter().map(|cell| format!(" {:>15} |", cell.title())).collect();
    println!("| {:12} |{heads}", "");
    println!("|{}", "---|".repeat(cells.len() + 1));
    for (number, verb) in VERBS.iter().enumerate().filter(|(_, verb)| !verb.silent) {
        let figures: String =
            (0..cells.len()).map(|cell| format!(" {:>15} |", figure(cell, number))).collect();
        println!("| {:12} |{figures}", verb.name);
    }
}
