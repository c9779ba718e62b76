//! Measures how often a draft model predicts a target's own text, without speculation. First the target writes a text
//! greedily. Then the draft model reads this text and predicts the token at every position (teacher forcing). One pass
//! of the draft model predicts many positions.

use crate::accept::Choice;
use crate::device::Device;
use crate::forward::{Limits, Llama};
use crate::paged::{BLOCK_SIZE, Batch, Logits};

/// How well a draft model predicted one output of the target. Each list has one entry for each output position.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdicts {
    /// The rank of the target's token among the draft model's guesses. Rank 1 is the most likely guess; 255 means rank
    /// 255 or more. Of two equal logits, the smaller token has the better rank.
    pub ranks: Vec<u8>,
    /// The draft model's probability of its own most likely guess, whether the guess is right or wrong.
    pub confidences: Vec<f32>,
}

/// Returns the limits with which a model must be loaded for [`write()`] and [`judge()`]. They are enough for `requests`
/// contexts of up to `context` tokens each, and for passes of up to `rows` tokens (at least one token per request).
pub fn limits(requests: usize, context: usize, rows: usize) -> Limits {
    let rows = rows.max(requests);
    Limits { kv_blocks: (requests * blocks(context)) as u32, max_rows: rows, max_logit_rows: rows }
}

fn blocks(context: usize) -> usize {
    context.div_ceil(BLOCK_SIZE)
}

/// Returns the block table of request `i`. Two requests never share a block if their contexts have at most `context`
/// tokens.
fn table(i: usize, context: usize) -> Vec<u32> {
    (i * blocks(context)..(i + 1) * blocks(context)).map(|block| block as u32).collect()
}

/// Generates the target's greedy outputs after `prompts`. An output has `output_len` tokens, or ends earlier with a
/// token of `stop`, which is part of the output. After the prompts, each pass generates one token of every output that
/// has not ended.
///
/// `go_on` is called before every pass, with the number of tokens generated since its last call (0 during the prompts).
/// If `go_on` returns false, `write` returns `None`. After the last pass `go_on` is called once more, for the last
/// tokens; its answer to this call is ignored.
///
pub fn write<D: Device>(
    device: &mut D,
    target: &mut Llama<D>,
    prompts: &[&[u32]],
    output_len: usize,
    stop: &[u32],
    mut go_on: impl FnMut(usize) -> bool,
) -> Result<Option<Vec<Vec<u32>>>, D::Error> {
    let longest = prompts.iter().map(|p| p.len()).max().unwrap_or(0) + output_len;
    let tables: Vec<Vec<u32>> = (0..prompts.len()).map(|i| table(i, longest)).collect();
    let (mut batch, mut choices) = (Batch::default(), Vec::new());
    let mut outputs = vec![Vec::new(); prompts.len()];
    for ((prompt, table), output) in prompts.iter().zip(&tables).zip(&mut outputs) {
        for (start, chunk) in chunks(prompt, target.limits().max_rows) {
            if !go_on(0) {
                return Ok(None);
            }
            batch.clear();
            let last = start + chunk.len() == prompt.len();
            batch.push_chain(chunk, start, table, if last { Logits::Last } else { Logits::Skip });
            target.forward(device, &batch)?;
        }
        device.top_k(target.logits(), 1, &mut choices)?;
        output.push(choices[0].token);
    }
    let ended = |output: &Vec<u32>| output.len() >= output_len || output.last().is_some_and(|t| stop.contains(t));
    let mut written = prompts.len();
    loop {
        let active: Vec<usize> = (0..prompts.len()).filter(|&i| !ended(&outputs[i])).collect();
        if active.is_empty() {
            go_on(written);
            return Ok(Some(outputs));
        }
        if !go_on(std::mem::take(&mut written)) {
            return Ok(None);
        }
        batch.clear();
        for &i in &active {
            let computed = prompts[i].len() + outputs[i].len() - 1;
            batch.push_chain(&outputs[i][outputs[i].len() - 1..], computed, &tables[i], Logits::Last);
        }
        target.forward(device, &batch)?;
        device.top_k(target.logits(), 1, &mut choices)?;
        active.iter().zip(&choices).for_each(|(&i, choice)| outputs[i].push(choice.token));
        written += active.len();
    }
}

/// Computes the draft model's predictions at every position of `output`. At each position the draft model sees `prompt`
/// and all earlier tokens of `output`.
///
pub fn judge<D: Device>(
    device: &mut D,
    draft: &mut Llama<D>,
    prompt: &[u32],
    output: &[u32],
) -> Result<Verdicts, D::Error> {
    let mut verdicts = Verdicts::default();
    let (mut batch, mut choices, mut logits) = (Batch::default(), Vec::new(), Vec::new());
    let (context, table) = (prompt.len() + output.len(), table(0, prompt.len() + output.len()));
    // When the draft model reads the prompt's last token, it gives the first prediction. It need not read the output's
    // last token, because no further token is predicted.
    let read: Vec<u32> = prompt.iter().chain(output).copied().take(context - 1).collect();
    let (without_logits, with_logits) = read.split_at(prompt.len() - 1);
    let vocab = draft.shape().vocab as usize;
    for (start, chunk) in chunks(without_logits, draft.limits().max_rows) {
        batch.clear();
        batch.push_chain(chunk, start, &table, Logits::Skip);
        draft.forward(device, &batch)?;
    }
    for (start, chunk) in chunks(with_logits, draft.limits().max_logit_rows) {
        batch.clear();
        batch.push_chain(chunk, without_logits.len() + start, &table, Logits::All);
        draft.forward(device, &batch)?;
        device.top_k(draft.logits(), 1, &mut choices)?;
        device.download(draft.logits(), &mut logits)?;
        for ((row, choice), &token) in logits.chunks_exact(vocab).zip(&choices).zip(&output[start..]) {
            verdicts.ranks.push(rank(row, *choice, token));
            verdicts.confidences.push(choice.probability);
        }
    }
    Ok(verdicts)
}

/// Splits `tokens` into chunks of at most `most` tokens. Returns for each chunk (the index of its first token, the
/// chunk).
fn chunks(tokens: &[u32], most: usize) -> impl Iterator<Item = (usize, &[u32])> {
    tokens.chunks(most).enumerate().map(move |(i, chunk)| (i * most, chunk))
}

/// Returns the rank of `token` by its logit, at most 255. `first` is the token that the device chose as the most likely
/// one; it always has rank 1.
fn rank(logits: &[f32], first: Choice, token: u32) -> u8 {
    if first.token == token {
        return 1;
    }
    let own = logits[token as usize];
    let before = |&(t, &logit): &(u32, &f32)| logit > own || logit == own && t < token;
    u8::try_from((0..).zip(logits).filter(before).count() + 1).unwrap_or(u8::MAX)
}
