//! Presets of models, read from `models.json`. The file `models.json` holds the contents of published `config.json`
//! files, each with its source. A preset is read by the same code as a user's `config.json`.

use super::layers::{Attention, FeedForward};
use super::shape::ModelShape;
use crate::hardware::config;
use serde::Deserialize;
use serde_json::Value;
use std::sync::LazyLock;

const TEXT: &str = include_str!("../../../models.json");

/// A model with a name, a shape and the sources of its numbers.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name of the preset model in experiment files.
    pub name: String,
    /// The model on Hugging Face, `owner/name`.
    pub model: String,
    /// The published `config.json` that the shape's numbers come from.
    pub source: String,
    /// Published number of parameters, with which a test compares the shape. For an MTP module, which has no published
    /// number, it is counted from the shape.
    pub published_parameters: f64,
    /// Published parameters that the shape does not count, such as a vision tower, an MTP module or copies of the
    /// embedding. The number is negative if the shape counts more than the published number: an output head that a
    /// draft model shares with its target.
    pub beside: f64,
    /// The place where the number of parameters was published.
    pub parameters_source: String,
    pub shape: ModelShape,
    /// Warnings about features that the model's `config.json` gives and that the roofline does not model, one sentence
    /// each.
    pub warnings: Vec<String>,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    model: String,
    source: String,
    parameters: f64,
    parameters_source: String,
    #[serde(default)]
    beside: f64,
    config: Value,
}

static CATALOG: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let rows: Vec<Row> = serde_json::from_str(TEXT).expect("models.json is a list of presets");
    rows.into_iter().flat_map(entries).collect()
});

/// The presets that a row of `models.json` gives: the model, and its MTP module if the model has one. The module's name
/// is the model's name with `-mtp` at its end.
fn entries(row: Row) -> Vec<Entry> {
    let read = config::read_value(&row.config, &row.name).unwrap_or_else(|e| panic!("models.json: {}: {e}", row.name));
    let module = read.mtp.map(|shape| Entry {
        name: shape.name.clone(),
        model: format!("{}, its MTP module", row.model),
        source: row.source.clone(),
        published_parameters: shape.parameters(),
        beside: 0.0,
        parameters_source: "counted from its shape".into(),
        shape,
        warnings: Vec::new(),
    });
    let model = Entry {
        name: row.name,
        model: row.model,
        source: row.source,
        published_parameters: row.parameters,
        beside: row.beside,
        parameters_source: row.parameters_source,
        shape: read.shape,
        warnings: read.warnings,
    };
    [model].into_iter().chain(module).collect()
}

/// All preset models, in the order of `models.json`.
pub fn catalog() -> &'static [Entry] {
    &CATALOG
}

/// The preset model with this name; `None` if there is none.
pub fn entry(name: &str) -> Option<&'static Entry> {
    CATALOG.iter().find(|e| e.name == name)
}

/// The sizes of a decoder whose layers are all equal and built like Llama's (grouped attention, gated dense block).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uniform {
    pub layers: u32,
    /// Number of query heads of each layer.
    pub heads: u32,
    /// Number of key-value heads of each layer.
    pub kv_heads: u32,
    /// Numbers in a query, a key or a value of one head.
    pub head_dim: u32,
    /// Inner width of each layer's feed-forward block.
    pub intermediate: u32,
}

impl ModelShape {
    /// The sizes of the model's layers if all are equal and built like Llama's: grouped attention to all tokens without
    /// an output gate, values as wide as keys, and a gated dense block. `None` for other models.
    pub fn uniform(&self) -> Option<Uniform> {
        let [group] = self.layers.as_slice() else { return None };
        let Attention::Grouped {
            heads,
            kv_heads,
            head_dim,
            value_dim: None,
            input: None,
            window: None,
            gated: false,
            values_from_keys: false,
            selection: None,
        } = group.attention
        else {
            return None;
        };
        let FeedForward::Dense { intermediate, gated: true } = group.feed_forward else { return None };
        Some(Uniform { layers: group.count, heads, kv_heads, head_dim, intermediate })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_the_published_number_of_parameters() {
        let counts = |e: &Entry| (e.name.clone(), e.shape.parameters(), e.published_parameters - e.beside);
        let far = |&(_, counted, published): &(String, f64, f64)| (counted / published - 1.0_f64).abs() >= 0.01;
        let wrong: Vec<_> = catalog().iter().map(counts).filter(far).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    /// Checks that every warning of a preset has more than one word. `cargo test -p foretoken-profiler -- --nocapture
    /// warnings` prints the warnings.
    #[test]
    fn warnings_are_sentences() {
        for (e, warning) in catalog().iter().flat_map(|e| e.warnings.iter().map(move |warning| (e, warning))) {
            println!("{}: {warning}", e.name);
            assert!(warning.contains(' '), "{}: {warning}", e.name);
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = catalog().iter().map(|e| e.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names.windows(2).find(|pair| pair[0] == pair[1]), None);
    }

    #[test]
    fn kv_of_vicuna_7b_is_half_a_mebibyte_a_token() {
        assert_eq!(entry("vicuna-7b").unwrap().shape.work().kv_bytes_token(1.0), 524_288.0);
        assert_eq!(entry("vicuna-68m").unwrap().shape.work().kv_bytes_token(1.0), 6144.0);
    }
}
