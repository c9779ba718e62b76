//! Reads which layers of sparse attention choose their tokens with an indexer, and which use the choice of an earlier
//! layer.

use super::bad::BadConfig;
use super::fields::Fields;

/// Whether each of `count` layers has an indexer, which chooses the tokens that the layer attends to. The list
/// `indexer_types` decides. Without this list, the letters of `index_topk_pattern` decide. Without both, the first
/// `index_skip_topk_offset` layers (2 if the file does not say) have an indexer, and after them every
/// `index_topk_freq`-th layer.
pub fn own(fields: &Fields, count: u32) -> Result<Vec<bool>, BadConfig> {
    let every = fields.size_of(&["index_topk_freq"])?.unwrap_or(1);
    let offset = fields.count("index_skip_topk_offset")?;
    let (key, own) = if let Some(types) = fields.texts("indexer_types")? {
        fields.get("index_topk_pattern");
        let one = |name: &&str| match *name {
            "full" => Ok(true),
            "shared" => Ok(false),
            other => Err(fields.bad("indexer_types", format!("`{other}` is not one of full and shared"))),
        };
        ("indexer_types", types.iter().map(one).collect::<Result<Vec<_>, _>>()?)
    } else if let Some(pattern) = fields.text("index_topk_pattern")? {
        let one = |letter: char| match letter {
            'F' => Ok(true),
            'S' => Ok(false),
            other => Err(fields.bad("index_topk_pattern", format!("`{other}` is not one of F and S"))),
        };
        ("index_topk_pattern", pattern.chars().map(one).collect::<Result<Vec<_>, _>>()?)
    } else {
        // If the file lacks `index_skip_topk_offset`, the value is 2, as in transformers' GlmMoeDsaConfig.
        let first = offset.unwrap_or(2);
        let own = |i: u32| (i + 1).saturating_sub(first).is_multiple_of(every);
        ("index_topk_freq", (0..count).map(own).collect())
    };
    if own.len() != count as usize {
        return Err(fields.bad(key, format!("lists {} layers of {count}", own.len())));
    }
    if !own[0] {
        return Err(fields.bad(key, "gives the first layer no indexer; it has no layer before it to take a choice of"));
    }
    Ok(own)
}
