//! Chooses the run of a results folder that a timeline shows.

use crate::spec::problem::{Problem, Result, nearest};
use foretoken_report::Key;

/// Which run of a results folder the user wants to see. A field that is absent fits every run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    pub policy: Option<&'a str>,
    pub seed: Option<u64>,
    /// Swept values of the wanted run, each as `path=value`.
    pub sweep: &'a [String],
}

/// Returns (the index in `keys` of the first run that fits `wanted`, the number of runs that fit).
pub fn choose(keys: &[Key], wanted: &Wanted) -> Result<(usize, usize)> {
    let mut fits: Vec<usize> = (0..keys.len()).collect();
    if let Some(policy) = wanted.policy {
        fits.retain(|&i| keys[i].policy == policy);
        if fits.is_empty() {
            return Err(unknown("policy", policy, keys.iter().map(|k| k.policy.as_str())));
        }
    }
    if let Some(seed) = wanted.seed {
        fits.retain(|&i| keys[i].seed == seed);
        if fits.is_empty() {
            let seeds: Vec<String> = keys.iter().map(|k| k.seed.to_string()).collect();
            return Err(unknown("seed", &seed.to_string(), seeds.iter().map(String::as_str)));
        }
    }
    for choice in wanted.sweep {
        let Some((path, value)) = choice.split_once('=').map(|(p, v)| (p.trim(), v.trim())) else {
            let problem = Problem::bad_input(format!("--sweep {choice}: no `=`"));
            return Err(problem.help("write --sweep path=value, for example --sweep engine.max_num_seqs=64"));
        };
        let swept = |i: &usize| keys[*i].sweep.iter().find(|s| s.path == path);
        if !fits.iter().any(|i| swept(i).is_some()) {
            let paths = keys.iter().flat_map(|k| &k.sweep).map(|s| s.path.as_str());
            return Err(unknown("swept setting", path, paths));
        }
        let values: Vec<String> = fits.iter().filter_map(swept).map(|s| s.value.clone()).collect();
        let number: Option<f64> = value.parse().ok();
        fits.retain(|i| swept(i).is_some_and(|s| s.value == value || (s.number.is_some() && s.number == number)));
        if fits.is_empty() {
            return Err(unknown(&format!("value of {path}"), value, values.iter().map(String::as_str)));
        }
    }
    let first = fits.first().copied().ok_or_else(|| Problem::bad_input("the results have no cells"))?;
    Ok((first, fits.len()))
}

/// The error for a name `given` (such as a policy) that no run has. The hint names the most similar name, and all known
/// names.
fn unknown<'a>(what: &str, given: &str, known: impl Iterator<Item = &'a str>) -> Box<Problem> {
    let mut names: Vec<&str> = Vec::new();
    known.for_each(|name| {
        if !names.contains(&name) {
            names.push(name);
        }
    });
    let problem = Problem::bad_input(format!("these results have no {what} `{given}`"));
    if names.is_empty() {
        return problem.help("the experiment swept nothing: leave --sweep out");
    }
    match nearest(given, names.iter().copied()) {
        Some(near) => problem.help(format!("did you mean `{near}`? There are {}", names.join(", "))),
        None => problem.help(format!("there are {}", names.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_report::Swept;

    fn keys() -> Vec<Key> {
        let sweep = |n: f64| vec![Swept::new("engine.max_num_seqs", n.to_string(), Some(n))];
        let one = |policy: &str, n, seed| Key { policy: policy.into(), sweep: sweep(n), seed };
        vec![one("fixed-3", 8.0, 1), one("adaspec", 8.0, 1), one("adaspec", 8.0, 2), one("adaspec", 64.0, 2)]
    }

    #[test]
    fn the_first_that_fits_is_chosen() {
        let chosen = |policy, seed, sweep: &[&str]| {
            let sweep: Vec<String> = sweep.iter().map(|s| (*s).to_owned()).collect();
            choose(&keys(), &Wanted { policy, seed, sweep: &sweep })
        };
        assert_eq!(chosen(None, None, &[]).unwrap(), (0, 4));
        assert_eq!(chosen(Some("adaspec"), None, &[]).unwrap(), (1, 3));
        assert_eq!(chosen(Some("adaspec"), Some(2), &["engine.max_num_seqs = 64.0"]).unwrap(), (3, 1));
        let help = |r: Result<(usize, usize)>| r.unwrap_err().help_text().to_owned();
        assert!(help(chosen(Some("adaspek"), None, &[])).contains("did you mean `adaspec`?"));
        assert!(help(chosen(None, Some(9), &[])).contains("1, 2"));
        assert!(help(chosen(None, None, &["engine.max_num_seq=8"])).contains("`engine.max_num_seqs`"));
        assert!(help(chosen(None, None, &["engine.max_num_seqs=9"])).contains("8, 64"));
        assert!(help(chosen(None, None, &["engine.max_num_seqs"])).contains("path=value"));
    }
}
