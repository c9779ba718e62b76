//! Draws tokens on the GPU, and computes the entropies and divergences of probability distributions there.

use super::arguments::*;
use super::device::{Cuda, word};
use super::error::CudaError;
use super::memory::Buffer;
use crate::accept::Chain;

fn words_of(bits: u64) -> [u32; 2] {
    [bits as u32, (bits >> 32) as u32]
}

impl Cuda {
    /// Verifies the chains of draft tokens `chains` by rejection sampling ([`crate::accept::reject`]). Writes three
    /// results per chain into `self.host`: the number of accepted tokens, the next token, and the target's probability
    /// of the next token.
    pub(super) fn draw(&mut self, target: &Buffer, draft: &Buffer, chains: &[Chain<'_>]) -> Result<(), CudaError> {
        let units = |chain: &Chain<'_>| {
            let luck = chain.luck;
            (0..2 * (chain.tokens.len() as u64 + 1)).map(move |position| luck.unit(position))
        };
        let units: Vec<f64> = chains.iter().flat_map(units).collect();
        let chains: Vec<_> = chains.iter().map(|c| (c.target, c.draft, c.tokens)).collect();
        self.draw_with(target, draft, &chains, &units)
    }

    /// Verifies chains of draft tokens by rejection sampling, as [`Cuda::draw`] does, but with uniform random numbers
    /// that the caller gives in `units`. A chain of n tokens takes 2·(n + 1) of these numbers. An entry of `chains` is
    /// (the chain's first row of the target's probabilities, its first row of the draft model's probabilities, its
    /// drafted tokens).
    pub(super) fn draw_with(
        &mut self,
        target: &Buffer,
        draft: &Buffer,
        chains: &[(usize, usize, &[u32])],
        units: &[f64],
    ) -> Result<(), CudaError> {
        assert_eq!(target.width, draft.width, "one vocabulary");
        self.begin();
        let mut first = 0;
        let mut descriptions = Vec::with_capacity(4 * chains.len());
        for &(target_row, draft_row, tokens) in chains {
            let rows = (target_row + tokens.len() < target.rows, draft_row + tokens.len() <= draft.rows);
            assert_eq!(rows, (true, true), "rows of the target and of the draft");
            assert!(tokens.iter().all(|&t| (t as usize) < target.width), "a token beyond the vocabulary");
            descriptions.extend([target_row, draft_row, first, tokens.len()].map(|n| n as u32));
            first += tokens.len();
        }
        let units = self.arena.push(units.iter().flat_map(|u| words_of(u.to_bits())), 0, 0);
        let descriptions = self.arena.push(descriptions, 0, 0);
        let tokens = self.arena.push(chains.iter().flat_map(|chain| chain.2.iter().copied()), 0, 0);
        let results = self.results(12 * chains.len())?;
        let arguments = RejectArgs {
            target: In::at(target.wide()),
            draft: In::at(draft.wide()),
            chains: In::at(descriptions),
            tokens: In::at(tokens),
            units: In::at(units),
            out: Out::at(results),
            width: target.width as u32,
            target_stride: target.stride(),
            draft_stride: draft.stride(),
            _even: 0,
        };
        self.now(|program| program.launch(&REJECT, [chains.len(), 1, 1], [512, 1], 0, &arguments))?;
        self.fetch(12 * chains.len())
    }

    /// Computes KL(target ‖ draft) in nats for each of `pairs`, which are (row of the target's probabilities, row of
    /// the draft model's probabilities). If `draft` is `None`, computes the entropies of the target's distributions.
    pub(super) fn divergences(
        &mut self,
        target: &Buffer,
        draft: Option<&Buffer>,
        pairs: impl ExactSizeIterator<Item = (u32, u32)>,
        out: &mut Vec<f64>,
    ) -> Result<(), CudaError> {
        self.begin();
        let count = pairs.len();
        let pairs = self.arena.push(pairs.flat_map(|(t, d)| [t, d]), 0, 0);
        let results = self.results(8 * count)?;
        let arguments = DivergenceArgs {
            target: In::at(target.wide()),
            draft: In::at(draft.map_or(0, Buffer::wide)),
            pairs: In::at(pairs),
            out: Out::at(results),
            width: target.width as u32,
            target_stride: target.stride(),
            draft_stride: draft.map_or(0, Buffer::stride),
            _even: 0,
        };
        self.now(|program| program.launch(&DIVERGENCE, [count, 1, 1], [512, 1], 0, &arguments))?;
        self.fetch(8 * count)?;
        let number = |i: usize| {
            let bits = u64::from(word(&self.host, 2 * i)) | u64::from(word(&self.host, 2 * i + 1)) << 32;
            f64::from_bits(bits)
        };
        out.clear();
        out.extend((0..count).map(number));
        Ok(())
    }
}
