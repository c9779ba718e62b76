//! Reads layers that keep a recurrent state of fixed size: gated delta rule, Kimi's delta attention, Mamba-2.

use super::bad::BadConfig;
use super::fields::Fields;
use crate::hardware::models::Attention;

/// Bytes of a number in a recurrent state: engines store it in 32 bits.
const STATE_BYTES: f64 = 4.0;
/// Bytes of a number in a convolution's state.
const CONVOLUTION_BYTES: f64 = 2.0;

/// Reads a layer of linear attention: Kimi's if the file has `linear_attn_config` or (GLM-5.3-Flash)
/// `linear_num_heads`, else Qwen's.
pub fn layer(fields: &Fields) -> Result<Attention, BadConfig> {
    match fields.table("linear_attn_config")? {
        Some(table) => {
            let sizes =
                (table.size("num_heads")?, table.size("head_dim")?, table.size_of(&["short_conv_kernel_size"])?);
            kimi_delta(fields, sizes, table.flag("use_full_rank_gate")?.unwrap_or(false))
        }
        None => match fields.size_of(&["linear_num_heads"])? {
            Some(heads) => {
                let kernel = fields.size_of(&["linear_conv_kernel_dim"])?;
                kimi_delta(fields, (heads, fields.size("linear_head_dim")?, kernel), false)
            }
            None => gated_delta(fields),
        },
    }
}

/// Reads Qwen3-Next's gated delta rule (transformers' `Qwen3NextGatedDeltaNet`). It has projections to queries, keys,
/// values and gates, a convolution over queries, keys and values, and an output projection.
fn gated_delta(fields: &Fields) -> Result<Attention, BadConfig> {
    let size = |key: &str| fields.size(key).map(f64::from);
    let hidden = size("hidden_size")?;
    let keys = size("linear_num_key_heads")? * size("linear_key_head_dim")?;
    let (heads, dim) = (size("linear_num_value_heads")?, size("linear_value_head_dim")?);
    let values = heads * dim;
    let kernel = fields.size_of(&["linear_conv_kernel_dim"])?.map_or(4.0, f64::from);
    let convolved = 2.0 * keys + values;
    let parameters = hidden * (2.0 * keys + 2.0 * values + 2.0 * heads) + convolved * kernel + values * hidden;
    let state_bytes =
        heads * size("linear_key_head_dim")? * dim * STATE_BYTES + convolved * (kernel - 1.0) * CONVOLUTION_BYTES;
    Ok(Attention::Recurrent { parameters, state_bytes })
}

/// Reads Kimi Linear's delta attention: three projections with convolutions, a decay gate of low rank, an output gate
/// of low or (Kimi K3) full rank, and an output projection.
fn kimi_delta(
    fields: &Fields,
    (heads, dim, kernel): (u32, u32, Option<u32>),
    full_rank_gate: bool,
) -> Result<Attention, BadConfig> {
    let hidden = f64::from(fields.size("hidden_size")?);
    let (heads, dim, kernel) = (f64::from(heads), f64::from(dim), kernel.map_or(4.0, f64::from));
    let width = heads * dim;
    let low_rank = dim * (hidden + width);
    let output_gate = if full_rank_gate { hidden * width } else { low_rank };
    let gates = low_rank + output_gate + hidden * heads;
    let parameters = 4.0 * hidden * width + gates + 3.0 * width * kernel;
    let state_bytes = width * dim * STATE_BYTES + 3.0 * width * (kernel - 1.0) * CONVOLUTION_BYTES;
    Ok(Attention::Recurrent { parameters, state_bytes })
}

/// Reads a Mamba-2 layer (arXiv 2405.21060) of Nemotron-H.
pub fn mamba2(fields: &Fields) -> Result<Attention, BadConfig> {
    let size = |key: &str| fields.size(key).map(f64::from);
    let hidden = size("hidden_size")?;
    let (heads, dim) = (size("mamba_num_heads")?, size("mamba_head_dim")?);
    let groups = fields.size_of(&["n_groups", "mamba_n_groups"])?.map_or(1.0, f64::from);
    let state = fields.size_of(&["ssm_state_size", "mamba_d_state"])?;
    let state = f64::from(state.ok_or_else(|| fields.bad("ssm_state_size", "missing; a Mamba layer needs it"))?);
    let kernel = fields.size_of(&["conv_kernel", "mamba_d_conv"])?.map_or(4.0, f64::from);
    let inner = heads * dim;
    let convolved = inner + 2.0 * groups * state;
    let parameters = hidden * (inner + convolved + heads) + convolved * kernel + inner * hidden;
    let state_bytes = inner * state * STATE_BYTES + convolved * (kernel - 1.0) * CONVOLUTION_BYTES;
    Ok(Attention::Recurrent { parameters, state_bytes })
}
