//! What tokens a sequence has, without the tokens: runs of positions of known contents.
//!
//! A trace does not say which tokens a prompt has. It says which prompts begin alike. So a token is named by the
//! content that it belongs to and by its place in it, and two tokens are equal if both are.

/// `len` tokens of a content, from its token `start` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Which content. Equal numbers mean equal tokens.
    pub content: u64,
    /// Place of the run's first token in the content.
    pub start: u32,
    /// Number of tokens.
    pub len: u32,
}

/// A sequence of tokens, or of pairs of neighbouring tokens ([`pairs`](Tokens::pairs)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Neighbouring runs never continue each other, so that equal sequences have equal runs.
    runs: Vec<Run>,
    len: u32,
}

impl Tokens {
    /// Number of tokens.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The runs.
    pub fn into_runs(self) -> Vec<Run> {
        self.runs
    }

    /// Appends a run.
    pub fn push(&mut self, run: Run) {
        if run.len == 0 {
            return;
        }
        self.len += run.len;
        match self.runs.last_mut() {
            Some(last) if last.content == run.content && last.start + last.len == run.start => last.len += run.len,
            _ => self.runs.push(run),
        }
    }

    /// Drops all tokens behind the first `len`.
    pub fn truncate(&mut self, len: u32) {
        while self.len > len {
            let last = self.runs.last_mut().expect("runs hold all tokens");
            let cut = last.len.min(self.len - len);
            last.len -= cut;
            self.len -= cut;
            if last.len == 0 {
                self.runs.pop();
            }
        }
    }

    /// Cuts off and returns the first `len` tokens.
    pub fn split_front(&mut self, len: u32) -> Tokens {
        let mut front = Tokens::default();
        let mut whole = 0;
        for run in &self.runs {
            if front.len + run.len > len {
                break;
            }
            front.push(*run);
            whole += 1;
        }
        self.runs.drain(..whole);
        let rest = len - front.len;
        if rest > 0 {
            let run = &mut self.runs[0];
            front.push(Run { len: rest, ..*run });
            (run.start, run.len) = (run.start + rest, run.len - rest);
        }
        self.len -= len;
        front
    }

    /// Number of tokens in which both sequences begin alike.
    pub fn common(&self, other: &Tokens) -> u32 {
        let (mut i, mut j, mut same) = (0, 0, 0);
        // How many tokens of the present run of each sequence are compared.
        let (mut x, mut y) = (0, 0);
        while let (Some(a), Some(b)) = (self.runs.get(i), other.runs.get(j)) {
            if a.content != b.content || a.start + x != b.start + y {
                break;
            }
            let len = (a.len - x).min(b.len - y);
            (same, x, y) = (same + len, x + len, y + len);
            if x == a.len {
                (i, x) = (i + 1, 0);
            }
            if y == b.len {
                (j, y) = (j + 1, 0);
            }
        }
        same
    }

    /// The pairs of neighbouring tokens, one fewer than there are tokens. SGLang's tree has them as keys for EAGLE,
    /// whose drafter reads a token beside the hidden state of the token before.
    pub fn pairs(&self) -> Tokens {
        let mut pairs = Tokens::default();
        for (i, run) in self.runs.iter().enumerate() {
            // A pair within a content is named by its first token.
            pairs.push(Run { len: run.len - 1, ..*run });
            if let Some(next) = self.runs.get(i + 1) {
                let ends = mix(run.content, u64::from(run.start + run.len - 1));
                pairs.push(Run {
                    content: mix(ends, mix(next.content, u64::from(next.start))),
                    start: u32::MAX,
                    len: 1,
                });
            }
        }
        pairs
    }

    /// A number of the first `len` tokens, by which the children of a tree's node are found.
    pub fn hash_of_first(&self, len: u32) -> u64 {
        let (mut hash, mut left) = (0, len);
        for run in &self.runs {
            let take = run.len.min(left);
            hash = mix(mix(hash, run.content), u64::from(run.start) << 32 | u64::from(take));
            left -= take;
            if left == 0 {
                break;
            }
        }
        hash
    }
}

impl FromIterator<Run> for Tokens {
    fn from_iter<I: IntoIterator<Item = Run>>(runs: I) -> Tokens {
        let mut tokens = Tokens::default();
        runs.into_iter().for_each(|run| tokens.push(run));
        tokens
    }
}

/// SplitMix64's finaliser over a combination of two numbers.
fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.rotate_left(23) ^ b.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
