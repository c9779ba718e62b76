//! Tables that the reader can sort: numbers by their sort keys, texts alphabetically.

use crate::figures::hex;
use crate::{Dash, Look, Marker};
use serde::{Serialize, Serializer};

#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    /// The caption above the table; may be empty.
    pub caption: String,
    /// Headings, each with an explanation that appears as a tooltip; the explanation may be empty.
    pub columns: Vec<(String, String)>,
    /// The rows, in the order in which they are shown at first.
    pub rows: Vec<Row>,
    /// Do colours show how far values are behind the best of their column? The table then has a key of the colours, and
    /// a phone shows all columns with [`Value::brief`] in them.
    pub shaded: bool,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    pub values: Vec<Value>,
    /// Is the row shown in grey italics? True for the baseline and for an oracle, because a user would not choose them.
    pub apart: bool,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Value {
    pub text: String,
    /// The sort key of a number. `None` for a text and for a missing number. Texts sort alphabetically, and missing
    /// numbers sort last.
    #[serde(serialize_with = "sort_key")]
    pub by: Option<f64>,
    /// Does the value belong to a column of numbers? Columns of numbers are aligned to the right.
    pub number: bool,
    /// The address that the text links to; empty for no link.
    pub link: String,
    /// A shorter text for a phone, in a table that is shaded; empty for none.
    pub brief: String,
    /// How near the value is to the best of its column: 0 for no colour, to 5 for the strongest.
    pub shade: usize,
    /// A small picture above the text, an SVG document, which must be trusted; empty for none.
    pub drawing: String,
    /// The colour, dash and marker of a policy, drawn before its name.
    #[serde(serialize_with = "swatch")]
    pub swatch: Option<Look>,
}

impl Table {
    /// A table with this caption, these headings with their explanations, and no rows.
    pub fn new(caption: &str, columns: &[(&str, &str)]) -> Table {
        let columns = columns.iter().map(|&(name, meaning)| (name.to_owned(), meaning.to_owned())).collect();
        Table { caption: caption.to_owned(), columns, rows: Vec::new(), shaded: false }
    }

    /// The small pictures of the table, as SVG documents.
    pub fn drawings(&self) -> impl Iterator<Item = &str> {
        let values = self.rows.iter().flat_map(|row| &row.values);
        values.map(|value| value.drawing.as_str()).filter(|svg| !svg.is_empty())
    }
}

impl Row {
    /// A row of `values`, in ordinary type and not in grey italics.
    pub fn of(values: impl IntoIterator<Item = Value>) -> Row {
        Row { values: values.into_iter().collect(), apart: false }
    }
}

impl Value {
    pub fn text(text: impl Into<String>) -> Value {
        Value { text: text.into(), ..Value::default() }
    }

    /// A number that is shown as `text` and sorts by `by`.
    pub fn number(by: f64, text: impl Into<String>) -> Value {
        Value { text: text.into(), by: Some(by), number: true, ..Value::default() }
    }

    /// A missing number, shown as a dash.
    pub fn none() -> Value {
        Value { text: "–".to_owned(), number: true, ..Value::default() }
    }

    /// A text that links to the address `link`, such as a page in the same folder.
    pub fn link(text: impl Into<String>, link: impl Into<String>) -> Value {
        Value { text: text.into(), link: link.into(), ..Value::default() }
    }

    /// A policy's label, with its colour, dash and marker drawn before it.
    pub fn policy(label: impl Into<String>, look: Look) -> Value {
        Value { text: label.into(), swatch: Some(look), ..Value::default() }
    }
}

/// How far values of a shade may be behind the best of their column, from the strongest shade to the weakest.
const BEHIND: [f64; 5] = [0.01, 0.05, 0.1, 0.2, 0.5];

impl Value {
    /// The value in the colour for `behind`, how far it is behind the best of its column (0.1: a tenth). On a phone its
    /// text is `brief`.
    pub fn shaded(self, behind: Option<f64>, brief: impl Into<String>) -> Value {
        let class = behind.and_then(|behind| BEHIND.iter().position(|most| behind <= most + 1e-9));
        Value { shade: class.map_or(0, |at| BEHIND.len() - at), brief: brief.into(), ..self }
    }
}

/// Serializes a sort key with nine significant digits, because all digits would make the page larger.
fn sort_key<S: Serializer>(by: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
    by.map(|by| format!("{by:.8e}").parse().unwrap_or(by)).serialize(to)
}

/// Serializes a policy's colour, dash and marker as a small SVG of its line and marker; `None` gives an empty text.
fn swatch<S: Serializer>(look: &Option<Look>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&look.map_or_else(String::new, drawn))
}

fn drawn(look: Look) -> String {
    let colour = hex(look.colour);
    let dash = match look.dash {
        Dash::Solid => "",
        Dash::Dashed => " stroke-dasharray=\"7 4\"",
        Dash::Dotted => " stroke-dasharray=\"2 3\"",
        Dash::LongDash => " stroke-dasharray=\"14 4\"",
    };
    let disc = |r: f64, fill: &str| format!("<circle cx=\"16\" cy=\"6\" r=\"{r}\" fill=\"{fill}\"/>");
    let filled = |d: &str| format!("<path d=\"{d}\" fill=\"{colour}\"/>");
    let stroked = |d: &str| format!("<path d=\"{d}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.2\"/>");
    let marker = match look.marker {
        Marker::Circle => disc(4.0, &colour),
        Marker::Ring => disc(4.0, &colour) + &disc(2.4, "#FFFFFF"),
        Marker::Square => filled("M12.4 2.4h7.2v7.2h-7.2z"),
        Marker::Triangle => filled("M16 1.2l4.4 8h-8.8z"),
        Marker::TriangleDown => filled("M16 10.8l4.4-8h-8.8z"),
        Marker::Diamond => filled("M16 .8l5.2 5.2-5.2 5.2-5.2-5.2z"),
        Marker::Cross => stroked("M12.4 2.4l7.2 7.2M12.4 9.6l7.2-7.2"),
        Marker::Plus => stroked("M11.2 6h9.6M16 1.2v9.6"),
    };
    let line = format!("<path d=\"M0 6h32\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>");
    let size = "width=\"32\" height=\"12\" viewBox=\"0 0 32 12\"";
    format!("<svg class=\"swatch\" {size} aria-hidden=\"true\">{line}{marker}</svg>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nearer_to_the_best_has_a_stronger_shade() {
        let shade = |behind| Value::number(1.0, "1").shaded(behind, "1").shade;
        let all = [Some(0.0), Some(0.01), Some(0.02), Some(0.1), Some(0.11), Some(0.5), Some(0.51), None];
        assert_eq!(all.map(shade), [5, 5, 4, 3, 2, 1, 0, 0]);
    }

    #[test]
    fn the_key_of_the_shades_says_their_ends() {
        let key = include_str!("../../templates/parts.html");
        for (at, most) in BEHIND.iter().enumerate() {
            let (class, percent) = (BEHIND.len() - at, 100.0 * most);
            assert!(key.contains(&format!("<span class=\"h{class}\">{percent} %</span>")), "{percent}");
        }
    }
}
