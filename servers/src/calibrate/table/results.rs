//! Rows of benchmark results from files that load generators wrote, each given with its draft length.

use super::cell::{Accepted, Cell, CellLoad};
use super::limits::is_not_streamed;
use super::read::wrong_unit;
use crate::calibrate::kept::Input;
use crate::calibrate::source::unread;
use crate::recordings::foreign::results::{self, Acceptance, Load, Run};
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_sim::MAX_SPEC_LEN;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The mean number of draft tokens of a request in a step may be below the draft length by at most this share,
/// because the last draft of an answer may be shorter.
const SHORTER: f64 = 0.25;

/// A load generator's file of results, and the draft length with which its runs were measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultFile {
    /// Draft length of all runs of the file; 0 without speculation.
    pub k: u32,
    pub path: PathBuf,
}

impl ResultFile {
    /// Reads `K=FILE`. `None` if the text has no `=`, or if it is the path of a file.
    pub fn of(text: &Path) -> Result<Option<ResultFile>> {
        let Some((k, path)) = text.to_str().and_then(|text| text.split_once('=')).filter(|_| !text.exists()) else {
            return Ok(None);
        };
        match k.parse::<u32>() {
            Ok(k) if k <= MAX_SPEC_LEN => Ok(Some(ResultFile { k, path: path.into() })),
            _ => Err(Problem::bad_input(format!("{}: {k:?} is no draft length up to {MAX_SPEC_LEN}", text.display()))
                .help("give K=FILE: 0=plain.json without speculation, 3=drafts.json with drafts of 3 tokens")),
        }
    }
}

/// The rows of benchmark results that load generators' files give.
#[derive(Clone, Debug)]
pub struct Results {
    /// The names of the load generators' files in messages.
    pub name: String,
    /// The load generators' files, with their digests.
    pub inputs: Vec<Input>,
    /// One row for each run, in the order of the files.
    pub cells: Vec<Cell>,
    /// Warnings about the load generators' files, one sentence each, for the user.
    pub warnings: Vec<String>,
}

impl Results {
    pub fn read(files: &[ResultFile]) -> Result<Results> {
        let mut all = Results { name: String::new(), inputs: vec![], cells: vec![], warnings: vec![] };
        for file in files {
            let path = file.path.display().to_string();
            let bytes = fs_err::read(&file.path).map_err(|e| Problem::bad_input(e.to_string()))?;
            let (format, runs) = results::parse(&file.path, &bytes).map_err(unread)?;
            for run in runs {
                all.add(file.k, &path, run)?;
            }
            all.inputs.push(Input {
                path: path.clone(),
                blake3: blake3::hash(&bytes).to_hex().to_string(),
                what: format.name().to_owned(),
            });
            all.name += if all.name.is_empty() { "" } else { ", " };
            all.name += &path;
        }
        if let Some((cell, what, units)) = wrong_unit(&all.cells) {
            let place = cell.from.as_deref().unwrap_or_default();
            let help = format!("{units}; runs of another server or of another unit cannot be fitted together");
            return Err(Problem::bad_input(format!("{place}: {what}")).help(help));
        }
        Ok(all)
    }

    fn add(&mut self, k: u32, path: &str, run: Run) -> Result<()> {
        let from = format!("{path}, run {}", run.number);
        let load = match run.load {
            Load::Clients(n) => CellLoad::Clients(n),
            Load::Rate(rate) => CellLoad::Rate(rate),
        };
        if let Some(twin) = self.cells.iter().find(|c| c.k == k && c.load == load) {
            let (load, twin) = (load.in_words(), twin.from.as_deref().unwrap_or_default());
            return Err(Problem::bad_input(format!("{from}: K = {k} at {load} is in {twin} already"))
                .help("keep one run of each load and draft length"));
        }
        if matches!(load, CellLoad::Rate(_)) && run.ttft_s.or(run.tpot_s).is_none() {
            return Err(Problem::bad_input(format!("{from}: it has a rate, but neither TTFT nor TPOT"))
                .help("run the benchmark with streaming: the throughput of open arrivals is what was asked for"));
        }
        if run.failed > 0 {
            let (failed, done) = (run.failed, run.completed);
            self.warnings.push(format!("{from}: {failed} requests failed; the means are of the {done} that succeeded"));
        }
        self.warnings.extend(run.notes.iter().map(|note| format!("{from}: {note}")));
        let accepted = accepted(k, &from, &run)?;
        if k > 0 && accepted.is_none() {
            self.warnings
                .push(format!("{from}: the file does not say what was accepted: other runs' acceptance is taken"));
        }
        let mut cell = Cell {
            line: self.cells.len() + 1,
            from: Some(from.clone()),
            load,
            k,
            input: run.input.max(1.0),
            output: run.output.max(1.0),
            requests: Some(run.completed),
            max_num_seqs: None,
            tok_s: Some(run.tok_s).filter(|x| *x > 0.0),
            ttft_s: run.ttft_s,
            tpot_s: run.tpot_s,
            accepted,
        };
        if is_not_streamed(&cell, run.e2e_s) {
            let what = "the first token comes with the last, so the answers were not streamed";
            let of_clients = matches!(load, CellLoad::Clients(_)) && cell.tok_s.is_some();
            if !of_clients {
                return Err(Problem::bad_input(format!("{from}: {what}, and nothing else was measured"))
                    .help("run the benchmark with streaming"));
            }
            self.warnings.push(format!("{from}: {what}: its TTFT and TPOT are left out, its throughput is taken"));
            (cell.ttft_s, cell.tpot_s) = (None, None);
        }
        self.cells.push(cell);
        Ok(())
    }
}

/// How many draft tokens of a request were accepted in a step of the run `run`. It is an error if the number
/// contradicts the draft length `k`.
fn accepted(k: u32, from: &str, run: &Run) -> Result<Option<Accepted>> {
    let wrong = |what: String| {
        Err(Problem::bad_input(format!("{from}: {what}, and the file is given with K = {k}"))
            .help("give the draft length with which the server ran: K=FILE"))
    };
    let most = f64::from(k);
    if let Some(drafted) = run.drafted.filter(|&d| d > most + 1e-6 || d < (1.0 - SHORTER) * most) {
        return wrong(format!("its rounds drafted {drafted:.2} tokens"));
    }
    match &run.accepted {
        None => Ok(None),
        Some(Acceptance::Mean(mean)) if *mean > most + 1e-6 => wrong(format!("its rounds accepted {mean:.2} drafts")),
        Some(_) if k == 0 => Ok(None),
        Some(Acceptance::Mean(mean)) => Ok(Some(Accepted::Mean(mean.min(most)))),
        Some(Acceptance::ByPosition(shares)) => {
            let mut shares = shares.clone();
            let beyond = shares.iter().skip(k as usize).any(|&s| s > 0.0);
            if beyond || shares.iter().any(|&s| s > 1.0 + 1e-6) || shares.windows(2).any(|w| w[1] > w[0] + 1e-6) {
                return wrong(format!("its shares by position are {shares:?}"));
            }
            shares.resize(k as usize, 0.0);
            Ok(Some(if k == 1 { Accepted::Mean(shares[0]) } else { Accepted::ByPosition(shares) }))
        }
    }
}

/// The rows of benchmark results as a table in CSV. The user can add to this table what the load generators' files do
/// not say, such as acceptance.
pub(super) fn as_table(cells: &[Cell]) -> String {
    let mut text = "clients,rate,k,input,output,requests,tok_s,ttft_ms,tpot_ms,accepted".to_owned();
    let number = |x: Option<f64>| x.map_or(String::new(), |x| format!("{x:.4}"));
    for c in cells {
        let (clients, rate) = match c.load {
            CellLoad::Clients(n) => (n.to_string(), String::new()),
            CellLoad::Rate(rate) => (String::new(), rate.to_string()),
        };
        let requests = c.requests.map_or(String::new(), |n| n.to_string());
        let ms = |s: Option<f64>| number(s.map(|s| 1e3 * s));
        let accepted = number(c.accepted.as_ref().map(Accepted::mean));
        let (tok_s, ttft, tpot) = (number(c.tok_s), ms(c.ttft_s), ms(c.tpot_s));
        let (input, output) = (number(Some(c.input)), number(Some(c.output)));
        write!(text, "\n{clients},{rate},{},{input},{output},{requests},{tok_s},{ttft},{tpot},{accepted}", c.k)
            .expect("a string grows");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(accepted: Option<Acceptance>, drafted: Option<f64>) -> Run {
        Run {
            number: 1,
            load: Load::Clients(4),
            completed: 10,
            failed: 0,
            input: 100.0,
            output: 50.0,
            tok_s: 200.0,
            ttft_s: Some(0.1),
            tpot_s: Some(0.02),
            e2e_s: None,
            accepted,
            drafted,
            notes: vec![],
        }
    }

    #[test]
    fn a_draft_length_stands_before_the_file() {
        let of = |text: &str| ResultFile::of(Path::new(text));
        assert_eq!(of("3=a=b.json").unwrap(), Some(ResultFile { k: 3, path: "a=b.json".into() }));
        assert_eq!(of("a.json").unwrap(), None);
        for bad in ["=a.json", "-1=a.json", "99=a.json", "k3=a.json"] {
            assert!(of(bad).unwrap_err().message().contains("is no draft length up to 32"), "{bad}");
        }
    }

    #[test]
    fn acceptance_must_fit_the_draft_length() {
        let shares = |all: &[f64]| Some(Acceptance::ByPosition(all.to_vec()));
        let of = |k, accepted, drafted| accepted_of(k, accepted, drafted).map_err(|e| e.message().to_owned());
        let accepted_ok = |k, accepted| of(k, accepted, None).unwrap();
        assert_eq!(accepted_ok(3, shares(&[0.7, 0.4])), Some(Accepted::ByPosition(vec![0.7, 0.4, 0.0])));
        assert_eq!(accepted_ok(1, shares(&[0.7, 0.0])), Some(Accepted::Mean(0.7)));
        assert_eq!(accepted_ok(3, Some(Acceptance::Mean(1.5))), Some(Accepted::Mean(1.5)));
        assert_eq!(accepted_ok(0, Some(Acceptance::Mean(0.0))), None);
        let error = |k, accepted, drafted| of(k, accepted, drafted).unwrap_err();
        assert!(
            error(0, None, Some(3.0)).starts_with("a.json, run 1: its rounds drafted 3.00 tokens, and the file is")
        );
        assert!(error(5, None, Some(3.0)).contains("given with K = 5"));
        assert!(error(1, Some(Acceptance::Mean(1.5)), None).contains("its rounds accepted 1.50 drafts"));
        assert!(error(2, shares(&[0.7, 0.8]), None).contains("its shares by position are [0.7, 0.8]"));
        assert!(error(1, shares(&[0.7, 0.4]), None).contains("its shares by position"));
        assert!(of(3, None, Some(2.9)).is_ok(), "the last round of an answer may be shorter");
        assert!(of(3, None, Some(3.0)).is_ok(), "all rounds are whole");
        assert!(error(3, None, Some(3.00001)).contains("its rounds drafted 3.00 tokens"));
        // Three quarters of a draft are enough on average.
        assert!(of(4, None, Some(3.0)).is_ok());
        assert!(error(4, None, Some(2.99)).contains("its rounds drafted 2.99 tokens"));
        // Shares and means may exceed their bound by an error of rounding.
        assert_eq!(accepted_ok(2, Some(Acceptance::Mean(2.0000001))), Some(Accepted::Mean(2.0)));
        assert_eq!(accepted_ok(2, shares(&[1.0, 1.0])), Some(Accepted::ByPosition(vec![1.0, 1.0])));
        assert!(error(2, shares(&[1.1, 0.4]), None).contains("its shares by position"));
    }

    fn accepted_of(k: u32, by: Option<Acceptance>, drafted: Option<f64>) -> Result<Option<Accepted>> {
        accepted(k, "a.json, run 1", &run(by, drafted))
    }

    #[test]
    fn answers_that_were_not_streamed_have_no_first_token() {
        let mut all = Results { name: "a.json".into(), inputs: vec![], cells: vec![], warnings: vec![] };
        // 8 clients, 1.6 s for 200 tokens: 1,000 tokens a second.
        let run = Run { load: Load::Clients(8), output: 200.0, tok_s: 1000.0, ..run(None, None) };
        let whole = Run { ttft_s: Some(1.6), tpot_s: None, e2e_s: Some(1.6), ..run };
        all.add(0, "a.json", whole.clone()).unwrap();
        assert_eq!((all.cells[0].tok_s, all.cells[0].ttft_s, all.cells[0].tpot_s), (Some(1000.0), None, None));
        assert!(all.warnings[0].contains("the first token comes with the last"), "{:?}", all.warnings);
        let open = all.add(0, "b.json", Run { load: Load::Rate(5.0), ..whole.clone() }).unwrap_err();
        assert!(open.message().contains("were not streamed, and nothing else was measured"), "{}", open.message());
        let streamed = Run { load: Load::Clients(9), ttft_s: Some(0.2), tpot_s: Some(7e-3), ..whole };
        all.add(0, "c.json", streamed).unwrap();
        assert_eq!((all.cells[1].ttft_s, all.warnings.len()), (Some(0.2), 1));
    }

    #[test]
    fn runs_become_cells_and_a_table() {
        let mut all = Results { name: "a.json".into(), inputs: vec![], cells: vec![], warnings: vec![] };
        all.add(0, "a.json", run(None, None)).unwrap();
        let open = Run { load: Load::Rate(2.5), tpot_s: None, failed: 3, ..run(None, None) };
        all.add(3, "b.json", open.clone()).unwrap();
        assert_eq!(
            as_table(&all.cells),
            "clients,rate,k,input,output,requests,tok_s,ttft_ms,tpot_ms,accepted\n\
             4,,0,100.0000,50.0000,10,200.0000,100.0000,20.0000,\n\
             ,2.5,3,100.0000,50.0000,10,200.0000,100.0000,,"
        );
        assert_eq!(super::super::read("t.csv", &as_table(&all.cells)).unwrap().len(), 2);
        assert!(all.warnings[0].starts_with("b.json, run 1: 3 requests failed"), "{:?}", all.warnings);
        assert!(all.warnings[1].contains("does not say what was accepted"), "{:?}", all.warnings);
        // A benchmark that measured no throughput has latencies alone.
        let silent = Run { load: Load::Clients(7), tok_s: 0.0, ..run(None, None) };
        all.add(0, "d.json", silent).unwrap();
        assert_eq!((all.cells[2].tok_s, all.cells[2].ttft_s, all.cells[2].line), (None, Some(0.1), 3));
        let twice = all.add(0, "c.json", run(None, None)).unwrap_err();
        assert_eq!(twice.message(), "c.json, run 1: K = 0 at 4 clients is in a.json, run 1 already");
        let bare = all.add(4, "c.json", Run { ttft_s: None, ..open }).unwrap_err();
        assert!(bare.message().contains("it has a rate, but neither TTFT nor TPOT"), "{}", bare.message());
    }
}
