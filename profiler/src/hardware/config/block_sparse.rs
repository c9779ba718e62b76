//! Reads MiniMax-M3's sparse attention: an indexer chooses the blocks of tokens that a token attends to.

use super::bad::BadConfig;
use super::fields::Fields;
use crate::hardware::models::Selection;

/// How each of `count` layers chooses the tokens that it attends to. An entry is `None` for a layer that attends to
/// all tokens. The result is `None` if the file has no sparse attention.
pub fn selections(fields: &Fields, count: u32) -> Result<Option<Vec<Option<Selection>>>, BadConfig> {
    let Some(table) = fields.table("sparse_attention_config")? else { return Ok(None) };
    if table.flag("use_sparse_attention")? == Some(false) {
        return Ok(None);
    }
    let flags = |key: &str| -> Result<Option<Vec<u64>>, BadConfig> {
        let flags = table.numbers(key)?;
        match flags.as_ref().map(Vec::len) {
            Some(length) if length != count as usize => {
                Err(table.bad(key, format!("lists {length} layers of {count}")))
            }
            _ => Ok(flags),
        }
    };
    let key = "sparse_attention_freq";
    let sparse = flags(key)?.ok_or_else(|| table.bad(key, "missing; it says which layers choose tokens"))?;
    let without_values = flags("sparse_disable_index_value")?.unwrap_or_else(|| vec![1; count as usize]);
    if sparse.iter().zip(&without_values).any(|(sparse, without)| *sparse != 0 && *without == 0) {
        return Err(table.bad("sparse_disable_index_value", "an indexer with values is not modelled"));
    }
    let (blocks, block) = (table.size("sparse_topk_blocks")?, table.size("sparse_block_size")?);
    let tokens = blocks.checked_mul(block).ok_or_else(|| table.bad("sparse_block_size", "too many tokens"))?;
    let selection = Selection {
        heads: table.size("sparse_num_index_heads")?,
        head_dim: table.size("sparse_index_dim")?,
        tokens,
        // vLLM's MiniMaxM3IndexerCache stores the indexer's keys in 16 bits.
        key_bits: 16,
        taken: false,
    };
    Ok(Some(sparse.into_iter().map(|flag| (flag != 0).then_some(selection)).collect()))
}
