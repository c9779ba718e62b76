//! A shard: a part of a run, for one of several machines. It has every N-th comparison of the run; a comparison is all
//! policies with one combination of swept values and one seed.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// One of N shards of a run. A shard has whole comparisons (all policies with one combination of swept values and one
/// seed), because the TPOT bound of a comparison may be a multiple of the TPOT of its autoregressive run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shard {
    /// Number N of shards into which the run is split.
    pub of: u32,
    /// Number of this shard, from 1.
    pub index: u32,
}

impl Shard {
    /// Does the shard have comparison number `comparison` (all policies with one combination of swept values and one
    /// seed)? Comparisons go to the shards in turn. Neighbours in a sweep cost about the same, so all shards cost about
    /// the same.
    pub fn has(self, comparison: usize) -> bool {
        comparison % self.of as usize == self.index as usize - 1
    }

    /// All shards of a run that is split into `of` shards, by rising number.
    pub fn all(of: u32) -> impl Iterator<Item = Shard> {
        (1..=of).map(move |index| Shard { of, index })
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let numbers = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        let (index, of): (u32, u32) = numbers.ok_or("a shard is I/N, as 3/8: the third of eight")?;
        match (index, of) {
            (_, 0) => Err("0 shards hold nothing: N is at least 1".into()),
            (0, _) => Err(format!("shards are counted from 1: the first of {of} is 1/{of}")),
            _ if index > of => Err(format!("there are {of} shards, and this is the {index}th")),
            _ => Ok(Shard { of, index }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_text_that_is_no_shard_is_refused() {
        for (text, said) in [
            ("0/4", "counted from 1"),
            ("5/4", "there are 4 shards"),
            ("1/0", "at least 1"),
            ("1", "I/N"),
            ("a/2", "I/N"),
            ("-1/2", "I/N"),
            ("1/2/3", "I/N"),
        ] {
            assert!(text.parse::<Shard>().unwrap_err().contains(said), "{text}");
        }
        assert_eq!("3/8".parse::<Shard>().unwrap().to_string(), "3/8");
    }

    proptest! {
        /// Every comparison is in exactly one shard, and the sizes of shards differ by at most one.
        #[test]
        fn shards_share_comparisons_out(of in 1u32..40, comparisons in 0usize..300) {
            let sizes: Vec<usize> = Shard::all(of).map(|s| (0..comparisons).filter(|&c| s.has(c)).count()).collect();
            prop_assert_eq!(sizes.iter().sum::<usize>(), comparisons);
            prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
        }
    }
}
