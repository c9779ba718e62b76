//! The verdict on a calibration: whether its fitted costs may be trusted.

use crate::calibrate::held_out::HeldOutRun;
use foretoken_run::spec::problem::{Exit, Problem, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Largest trusted error of the summed time of held-out steps, as a share. `foretoken profile` allows the same error
/// for its linear fit. A good draft length saves about three times this share, so larger errors lead to wrong
/// decisions. The bound is on sums of many steps, because latencies and rates are sums.
pub const TRUSTED: f64 = 0.10;

/// The verdict on a calibration: whether its fitted costs may be trusted, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// True if the costs may be trusted, false if not. `None` if there are no held-out runs or steps to judge the
    /// costs by, or if too little was measured.
    pub trusted: Option<bool>,
    /// If the costs are trusted: for which draft lengths, loads or runs, with the errors of their predictions.
    /// Otherwise the reason why the costs are not trusted or not judged.
    pub why: String,
}

impl Verdict {
    /// The verdict on costs from live runs. The pass times of each run are predicted by costs fitted to the runs of
    /// other cells (other policies or loads).
    pub fn of_live(runs: &[HeldOutRun]) -> Verdict {
        let parts = |r: &HeldOutRun| [("target", r.target), ("draft", r.draft)];
        let all = || runs.iter().flat_map(|r| parts(r).map(|(part, e)| Some((r, part, e?)))).flatten();
        let off: Vec<String> = all()
            .filter(|(.., e)| !within(*e))
            .map(|(r, part, e)| format!("{part} passes of {}: off by {}", r.policy, share(e)))
            .collect();
        if all().next().is_none() {
            let why =
                "one cell alone: nothing says how well it predicts another; `foretoken validate DIR --profile` does";
            return Verdict { trusted: None, why: why.into() };
        }
        if !off.is_empty() {
            let why = format!("{} (at most {:.0} % is trusted)", off.join(", "), 100.0 * TRUSTED);
            return Verdict { trusted: Some(false), why };
        }
        let worst = |part: &str| 100.0 * all().filter(|a| a.1 == part).map(|a| a.2.abs()).fold(0.0, f64::max);
        let drafts = match all().any(|a| a.1 == "draft") {
            true => format!(", draft passes within {:.1} %", worst("draft")),
            false => String::new(),
        };
        let why = format!("runs of cells it has not seen: target passes within {:.1} %{drafts}", worst("target"));
        Verdict { trusted: Some(true), why }
    }

    pub fn in_words(&self) -> String {
        match self.trusted {
            Some(true) => format!("trusted for {}", self.why),
            Some(false) => format!("not trusted: {}", self.why),
            None => format!("not judged: {}", self.why),
        }
    }

    /// Returns an error, with which the program exits, if the calibration that was written to `folder` is not
    /// trusted. A calibration that was not judged gives no error.
    pub fn judge(&self, folder: &Path) -> Result<()> {
        if self.trusted != Some(false) {
            return Ok(());
        }
        let message = format!("{} is written, but the calibration is {}", folder.display(), self.in_words());
        Err(Problem::new(Exit::Negative, message).help(
            "observe again on a machine on which nothing else runs, each load for longer, and calibrate on all runs",
        ))
    }

    /// The reason why the calibration is not trusted, as text; `None` if it is trusted. A calibration that was not
    /// judged counts as not trusted.
    pub fn distrust(&self) -> Option<String> {
        (self.trusted != Some(true)).then(|| format!("the calibration is {}", self.in_words()))
    }
}

/// True if the error of predicted step times is at most [`TRUSTED`] in size; false for NaN.
pub(crate) fn within(error: f64) -> bool {
    error.abs() <= TRUSTED
}

/// A relative error as text in percent with its sign, such as `-61.7 %`.
pub(crate) fn share(error: f64) -> String {
    foretoken_report::signed_percent(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(target: Option<f64>, draft: Option<f64>) -> HeldOutRun {
        HeldOutRun { policy: "fixed-3".into(), tape: "a.tape".into(), target, draft }
    }

    #[test]
    fn live_runs_far_off_are_not_trusted() {
        let verdict = Verdict::of_live(&[run(Some(0.02), Some(-0.617)), run(Some(-0.03), None)]);
        assert_eq!(
            verdict.in_words(),
            "not trusted: draft passes of fixed-3: off by -61.7 % (at most 10 % is trusted)"
        );
        let nan = Verdict::of_live(&[run(Some(f64::NAN), None)]);
        assert_eq!(nan.trusted, Some(false));
    }

    #[test]
    fn live_runs_near_enough_are_trusted() {
        let verdict = Verdict::of_live(&[run(Some(0.02), Some(-0.05)), run(Some(-0.03), None)]);
        let said = "trusted for runs of cells it has not seen: target passes within 3.0 %, draft passes within 5.0 %";
        assert_eq!((verdict.in_words().as_str(), verdict.distrust()), (said, None));
    }

    #[test]
    fn one_cell_alone_is_not_judged() {
        let verdict = Verdict::of_live(&[]);
        assert_eq!(verdict.trusted, None);
        assert!(verdict.distrust().unwrap().starts_with("the calibration is not judged: one cell alone"));
    }
}
