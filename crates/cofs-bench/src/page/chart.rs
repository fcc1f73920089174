//! Plots as SVG.

use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::Drawn;
use crate::settings::short;

/// Colours that people tell apart who see colours differently (Okabe and Ito, 2008), darkest first.
pub const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
];
const INK: RGBColor = RGBColor(40, 40, 40);
const FAINT: RGBColor = RGBColor(225, 225, 225);
const FONT: &str = "sans-serif";

pub fn color(index: usize) -> RGBColor {
    COLORS.get(index % COLORS.len()).copied().unwrap_or(INK)
}

/// One line: its colour, and places on the horizontal axis with least, median and most.
pub struct Line {
    pub color: usize,
    pub places: Vec<(usize, [f64; 3])>,
}

/// What the vertical axis is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// From 0.
    Linear,
    /// Whole decades. Only for values above 0.
    Logarithmic,
}

impl Scale {
    /// Logarithmic where a line would lie on the bottom otherwise: medians further apart than this.
    const FAR_APART: f64 = 25.0;

    pub fn of(lines: &[Line]) -> Self {
        let all = || lines.iter().flat_map(|line| &line.places).map(|(_, values)| values);
        let low = all().map(|[_, middle, _]| *middle).fold(f64::INFINITY, f64::min);
        let high = all().map(|[_, middle, _]| *middle).fold(0.0, f64::max);
        let above_0 = all().all(|[low, ..]| *low > 0.0);
        if above_0 && high > low * Self::FAR_APART { Self::Logarithmic } else { Self::Linear }
    }

    /// Where the value lies on an axis of these units.
    fn at(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Logarithmic => value.log10(),
        }
    }

    /// The axis's bounds, and the most labels that stand at round places of it.
    fn bounds(self, lines: &[Line]) -> ([f64; 2], usize) {
        let all = || lines.iter().flat_map(|line| &line.places).map(|(_, values)| values);
        let high = all().map(|[.., high]| *high).fold(0.0, f64::max);
        match self {
            Self::Linear => ([0.0, if high > 0.0 { high * 1.08 } else { 1.0 }], 6),
            Self::Logarithmic => {
                let low = all().map(|[low, ..]| *low).fold(f64::INFINITY, f64::min);
                let (low, high) = (low.log10().floor(), high.log10().ceil());
                ([low, high.max(low + 1.0)], (high - low).max(1.0) as usize + 1)
            }
        }
    }

    fn label(self, place: f64) -> String {
        match self {
            Self::Linear => short(place),
            // The whole decades that labels stand at are few letters as they are.
            Self::Logarithmic if place < 4.0 => format!("{}", 10f64.powi(place.round() as i32)),
            Self::Logarithmic => short(10f64.powf(place)),
        }
    }
}

/// A plot of medians with whiskers from the least to the most. The horizontal axis has one place for each value
/// that was measured, as in the papers.
pub fn lines(
    title: &str,
    xs: &[String],
    y_label: &str,
    x_label: &str,
    lines: &[Line],
    scale: Scale,
) -> Drawn<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (380, 270)).into_drawing_area();
        let ([bottom, top], labels) = scale.bounds(lines);
        let mut chart = ChartBuilder::on(&area)
            .caption(title, (FONT, 17).into_font().color(&INK))
            .margin(6)
            .margin_right(14)
            .x_label_area_size(40)
            .y_label_area_size(66)
            .build_cartesian_2d(-0.3..xs.len() as f64 - 0.7, bottom..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            .bold_line_style(FAINT)
            .axis_style(INK)
            .x_desc(x_label)
            .y_desc(y_label)
            .axis_desc_style((FONT, 14).into_font().color(&INK))
            .label_style((FONT, 13).into_font().color(&INK))
            .y_labels(labels)
            .y_label_formatter(&|value| scale.label(*value))
            // The places' own labels are written below.
            .x_labels(0)
            .draw()?;
        for (place, text) in thinned(xs) {
            let at = chart.backend_coord(&(place as f64, bottom));
            write_at(&area, text, (at.0, at.1 + 5), Pos::new(HPos::Center, VPos::Top), 13)?;
        }
        for line in lines {
            let color = color(line.color);
            let path = line.places.iter().map(|(place, [_, middle, _])| (*place as f64, scale.at(*middle)));
            chart.draw_series(LineSeries::new(path.clone(), color.stroke_width(2)))?;
            chart.draw_series(line.places.iter().map(|(place, [low, middle, high])| {
                let [low, middle, high] = [low, middle, high].map(|value| scale.at(*value));
                ErrorBar::new_vertical(*place as f64, low, middle, high, color.stroke_width(1), 7)
            }))?;
            chart.draw_series(path.map(|at| Circle::new(at, 3, color.filled())))?;
        }
        area.present()?;
    }
    Ok(svg)
}

/// Labels that do not run into each other.
fn thinned(labels: &[String]) -> impl Iterator<Item = (usize, &str)> {
    let letters: usize = labels.iter().map(|label| label.len() + 2).sum();
    let step = letters.div_ceil(36).max(1);
    labels.iter().map(String::as_str).enumerate().step_by(step)
}

fn write_at(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    text: &str,
    at: (i32, i32),
    pos: Pos,
    size: u32,
) -> Drawn {
    let style = (FONT, size).into_font().color(&INK).pos(pos);
    Ok(area.draw(&Text::new(text.to_owned(), at, style))?)
}

/// A ratio, with the least and the greatest of it.
pub struct Mark {
    pub name: String,
    pub low: f64,
    pub middle: f64,
    pub high: f64,
}

const ROW: u32 = 21;
const NAMES: i32 = 210;
const WIDTH: u32 = 820;

/// Ratios in rows, on a logarithmic axis with a line at 1.
pub fn ratios(marks: &[Mark]) -> Drawn<String> {
    let mut svg = String::new();
    {
        let height = marks.len() as u32 * ROW + 44;
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let low = marks.iter().map(|mark| mark.low).fold(0.8, f64::min);
        let high = marks.iter().map(|mark| mark.high).fold(1.25, f64::max);
        let (from, to) = ((low * 0.95).ln(), (high * 1.05).ln());
        let (left, right) = (f64::from(NAMES), f64::from(WIDTH) - 60.0);
        let x = |ratio: f64| (left + (ratio.ln() - from) / (to - from) * (right - left)) as i32;
        let bottom = (marks.len() as u32 * ROW + 8) as i32;
        for tick in ticks(low, high) {
            let style = if tick == 1.0 { INK.stroke_width(1) } else { FAINT.stroke_width(1) };
            area.draw(&PathElement::new(vec![(x(tick), 4), (x(tick), bottom)], style))?;
            write_at(&area, &short(tick), (x(tick), bottom + 4), Pos::new(HPos::Center, VPos::Top), 13)?;
        }
        let right_of_names = Pos::new(HPos::Right, VPos::Center);
        for (row, mark) in marks.iter().enumerate() {
            let y = (row as u32 * ROW + 14) as i32;
            let color = color(usize::from(mark.middle < 1.0));
            write_at(&area, &mark.name, (NAMES - 10, y), right_of_names, 14)?;
            area.draw(&PathElement::new(vec![(x(mark.low), y), (x(mark.high), y)], color.stroke_width(2)))?;
            area.draw(&Circle::new((x(mark.middle), y), 4, color.filled()))?;
            let text = format!("{:.2}", mark.middle);
            write_at(&area, &text, (right as i32 + 12, y), Pos::new(HPos::Left, VPos::Center), 14)?;
        }
        area.present()?;
    }
    Ok(svg)
}

/// Round numbers between the two, and 1.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let round = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 1.0, 1.25, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0];
    let within = |tick: &f64| *tick >= low && *tick <= high;
    // Between wide bounds the ones near 1 would run into each other.
    let wide = high / low > 8.0;
    round
        .into_iter()
        .filter(|tick| *tick == 1.0 || within(tick) && !(wide && (0.6..1.6).contains(tick)))
        .collect()
}
