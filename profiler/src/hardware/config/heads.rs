//! Reads drafters that use the target's hidden states: EAGLE-3 heads, block drafters and MTP modules.

use super::bad::BadConfig;
use super::blocks;
use super::families::Family;
use super::fields::Fields;
use crate::hardware::models::{Attention, LayerGroup, ModelShape};

/// If the file has the key `target_layer_ids`, turns `shape` into a block drafter (DFlash, DSpark), which drafts
/// several tokens in one pass. The key is inside the object `dflash_config` if the file has this object, else at the
/// top level. A matrix joins the target's hidden states of the listed layers. The drafter uses the target's output head
/// and embedding.
fn join_block(fields: &Fields, shape: &mut ModelShape) -> Result<bool, BadConfig> {
    let table = fields.table("dflash_config")?;
    let joined = match &table {
        Some(table) => table.numbers("target_layer_ids")?,
        None => fields.numbers("target_layer_ids")?,
    };
    let Some(joined) = joined else { return Ok(false) };
    let hidden = f64::from(shape.hidden);
    shape.tied = true;
    shape.joining_parameters = joined.len() as f64 * hidden * hidden;
    let nested = table.as_ref().map_or(Ok(None), |table| table.count("markov_rank"))?;
    if let Some(rank) = nested.or(fields.count("markov_rank")?) {
        // DSpark adds a bias to each token's logits. The bias depends on the token before, and is a product of two
        // matrices. Each matrix has `vocab` × `rank` numbers.
        shape.joining_parameters += 2.0 * f64::from(shape.vocab) * f64::from(rank);
    }
    fields.count("block_size")?;
    fields.count("num_target_layers")?;
    Ok(true)
}

/// The object with the layers of a drafter of Speculators (`transformer_layer_config`); `None` for other files.
pub fn speculator<'a>(whole: &Fields<'a>) -> Result<Option<Fields<'a>>, BadConfig> {
    let key = "speculators_model_type";
    match whole.text(key)? {
        None => Ok(None),
        Some("eagle3" | "dflash") => match whole.table("transformer_layer_config")? {
            Some(layers) => Ok(Some(layers)),
            None => Err(whole.bad("transformer_layer_config", "missing; it has the drafter's layers")),
        },
        Some(other) => Err(whole.bad(key, format!("`{other}` is not modelled; known are eagle3 and dflash"))),
    }
}

/// Turns `shape` into the drafter that the file describes; other files leave it unchanged. A file with
/// `target_layer_ids` describes a block drafter, which drafts several tokens in one pass. A file with
/// `draft_vocab_size` (or `truncated_vocab_size`) describes an EAGLE-3 head (arXiv 2503.01840, figure 6): a matrix
/// joins three hidden states of the target, or as many as `eagle_aux_hidden_state_layer_ids` lists, and the layers read
/// the result beside the token's embedding. The head's output matrix has `draft_vocab_size` outputs. The embedding is
/// the target's. The keys of a drafter are at the top level of the file, or beside its layers.
pub fn widen<'a>(whole: &Fields<'a>, fields: &Fields<'a>, shape: &mut ModelShape) -> Result<(), BadConfig> {
    let nested = whole.given("speculators_model_type").is_some();
    let fields = if nested { whole } else { fields };
    if join_block(fields, shape)? {
        return Ok(());
    }
    let Some(vocab) = fields.size_of(&["draft_vocab_size", "truncated_vocab_size"])? else {
        return match nested {
            true => Err(fields.bad("draft_vocab_size", "missing; an EAGLE-3 head has its own vocabulary")),
            false => Ok(()),
        };
    };
    fields.given("truncated_vocab_size");
    let target_hidden = fields.size_of(&["target_hidden_size"])?.unwrap_or(shape.hidden);
    let joined = fields.numbers("eagle_aux_hidden_state_layer_ids")?.map_or(3, |layers| layers.len());
    shape.vocab = vocab;
    shape.tied = true;
    shape.joining_parameters = joined as f64 * f64::from(target_hidden) * f64::from(shape.hidden);
    for group in &mut shape.layers {
        match &mut group.attention {
            Attention::Grouped { input, .. } => *input = Some(2 * shape.hidden),
            // The matrices that make the latent vectors read both inputs: their second half is counted here.
            Attention::Latent { query_rank: Some(rank), kv_rank, rope_dim, .. } => {
                shape.joining_parameters += f64::from(*rank + *kv_rank + *rope_dim) * f64::from(shape.hidden);
            }
            _ => {}
        }
    }
    Ok(())
}

/// The MTP module of a model (DeepSeek-V3, arXiv 2412.19437, section 2.2); `None` if the model has no module. A matrix
/// joins a hidden state and an embedding. The layers that the file lists for the module follow. If the file lists none,
/// one layer like the model's last layer with attention follows. The module uses the target's embedding and output
/// head.
pub fn mtp(fields: &Fields, family: &Family, shape: &ModelShape) -> Result<Option<ModelShape>, BadConfig> {
    let keys = ["num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"];
    let mut number = 0;
    for key in keys {
        number = number.max(fields.count(key)?.unwrap_or(0));
    }
    let listed = blocks::mtp_layers(fields, family)?;
    // Finds the last group of layers with attention. In hybrid models the MTP module has attention and no recurrent
    // state.
    let attends = |g: &&LayerGroup| !matches!(g.attention, Attention::Recurrent { .. } | Attention::None);
    let one = |last: &LayerGroup| LayerGroup { count: 1, attention: last.attention.of_module(), ..*last };
    let last = || shape.layers.iter().rfind(attends).map(|last| vec![one(last)]);
    let Some(layers) = listed.or_else(last).filter(|_| number > 0) else { return Ok(None) };
    let hidden = f64::from(shape.hidden);
    Ok(Some(ModelShape {
        name: format!("{}-mtp", shape.name),
        tied: true,
        layers,
        joining_parameters: 2.0 * hidden * hidden,
        ..shape.clone()
    }))
}
