//! The page's own words: nothing is fetched from anywhere, and what comes from results is escaped.

use super::chart::color;

pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            letter => out.push(letter),
        }
    }
    out
}

/// A plot with what it shows; `caption` is HTML already.
pub fn figure(svg: &str, caption: &str) -> String {
    match caption {
        "" => format!("<figure>{svg}</figure>"),
        caption => format!("<figure>{svg}<figcaption>{caption}</figcaption></figure>"),
    }
}

/// Which colour is what: the names' own, in order.
pub fn legend(names: &[String]) -> String {
    let colors: Vec<(usize, &str)> = names.iter().map(String::as_str).enumerate().collect();
    legend_of(&colors)
}

/// Which colour is what.
pub fn legend_of(names: &[(usize, &str)]) -> String {
    let mut out = String::from("<p class=\"legend\">");
    for (index, name) in names {
        let rgb = color(*index);
        out.push_str(&format!(
            "<span><i style=\"background:rgb({},{},{})\"></i>{}</span> ",
            rgb.0,
            rgb.1,
            rgb.2,
            escape(name)
        ));
    }
    out.push_str("</p>");
    out
}

/// A table whose first column reads from the left.
pub struct Table(String);

impl Table {
    pub fn new(heading: &[&str]) -> Self {
        let cells: String = heading.iter().map(|cell| format!("<th>{}</th>", escape(cell))).collect();
        Self(format!("<div class=\"wide\"><table><thead><tr>{cells}</tr></thead><tbody>"))
    }

    pub fn row(&mut self, cells: &[String]) {
        let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
        self.0.push_str(&format!("<tr>{cells}</tr>"));
    }

    pub fn end(self) -> String {
        self.0 + "</tbody></table></div>"
    }
}

/// A table of ratios, each on the colour of what it says: the first colour where it is above 1, the second below, the
/// stronger the further from it; faint where repeats differ on it.
pub struct Ratios(String);

impl Ratios {
    /// `heads` are columns with a heading of their own over so many of the table's columns.
    pub fn new(heads: &[(String, usize)], columns: &[String]) -> Self {
        let mut out = String::from("<div class=\"wide\"><table class=\"ratios\"><thead><tr><th></th>");
        for (head, span) in heads {
            out.push_str(&format!("<th colspan=\"{span}\">{}</th>", escape(head)));
        }
        out.push_str("</tr><tr><th></th>");
        columns.iter().for_each(|column| out.push_str(&format!("<th>{}</th>", escape(column))));
        Self(out + "</tr></thead><tbody>")
    }

    pub fn row(&mut self, name: &str) {
        self.0.push_str(&format!("<tr><td>{}</td>", escape(name)));
    }

    pub fn end_row(&mut self) {
        self.0.push_str("</tr>");
    }

    /// Least, median, most; nothing where it was not measured.
    pub fn cell(&mut self, ratio: Option<[f64; 3]>) {
        let Some([least, middle, most]) = ratio else {
            self.0.push_str("<td></td>");
            return;
        };
        let rgb = color(usize::from(middle < 1.0));
        let sure = if least > 1.0 || most < 1.0 { 1.0 } else { 0.35 };
        // A factor of 30 has the full colour.
        let strength = (middle.ln().abs() / 30f64.ln()).min(1.0) * 0.5 + 0.08;
        self.0.push_str(&format!(
            "<td style=\"background:rgba({},{},{},{:.2})\"><b>{}</b><small>{} – {}</small></td>",
            rgb.0,
            rgb.1,
            rgb.2,
            strength * sure,
            times(middle),
            times(least),
            times(most)
        ));
    }

    pub fn end(self) -> String {
        self.0 + "</tbody></table></div>"
    }
}

/// A ratio in two digits.
pub fn times(ratio: f64) -> String {
    let digits = match ratio {
        r if r < 0.095 => 3,
        r if r < 0.95 => 2,
        r if r < 9.5 => 1,
        _ => 0,
    };
    format!("{ratio:.digits$}")
}

pub fn document(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>{STYLE}</style></head>\n<body><main>\n{body}</main></body></html>\n"
    )
}

const STYLE: &str = "
body { margin: 0; background: #fff; color: #222; font: 15px/1.5 system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif; }
main { max-width: 1200px; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.7rem; margin: 0 0 .5rem; }
h2 { font-size: 1.3rem; margin: 2.2rem 0 .3rem; padding-bottom: .2rem; border-bottom: 2px solid #0072b2; }
h3 { font-size: 1.05rem; margin: 1.3rem 0 .2rem; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(360px, 1fr)); gap: .6rem; }
figure { margin: 0; }
figure svg { display: block; max-width: 100%; height: auto; }
figcaption { color: #555; font-size: .87rem; max-width: 820px; }
.legend { margin: .2rem 0 .5rem; }
.legend span { margin-right: 1.2rem; white-space: nowrap; }
.legend i { display: inline-block; width: .85em; height: .85em; border-radius: 50%; margin-right: .4em; vertical-align: -.08em; }
details { margin: .5rem 0; border: 1px solid #ddd; border-radius: 6px; padding: .4rem .8rem; }
summary { cursor: pointer; font-weight: 600; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; margin: .6rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .55rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #eee; }
th { color: #555; font-weight: 600; border-bottom: 1px solid #999; }
th:first-child, td:first-child { text-align: left; }
.beside { display: flex; flex-wrap: wrap; gap: 0 2.5rem; }
.ratios td { text-align: center; border: 2px solid #fff; padding: .2rem .6rem; }
.ratios td:first-child { text-align: left; }
.ratios th { text-align: center; }
.ratios td small { display: block; color: #555; font-size: .74rem; }
.verdict { margin: .4rem 0 .8rem; padding-left: 0; list-style: none; }
.verdict li { margin: .25rem 0; padding-left: .7rem; border-left: 4px solid #bbb; }
.verdict ul { margin: .1rem 0 0; padding-left: 1.3rem; list-style: disc; }
.verdict ul li { border: 0; padding: 0; margin: .1rem 0; }
.verdict .helps { border-color: #0072b2; }
.verdict .hurts { border-color: #d55e00; }
pre { overflow-x: auto; background: #f6f6f6; padding: .6rem; font-size: .8rem; }
.notes { color: #555; font-size: .87rem; }
@media print { details { break-inside: avoid; } }
";
