//! Turns a panic in a run into an error, so that a mistake in one policy makes one run fail and not the whole program.

use crate::spec::problem::{Problem, Result};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An error that a policy written in Python raised. It is thrown as a panic with [`std::panic::resume_unwind`], because
/// the functions of a policy that the engine calls cannot return errors.
pub struct Raised {
    /// The text of the error: the name of the policy's function that failed, and Python's traceback.
    pub what: String,
    /// A hint for the user on how to repair the policy.
    pub help: String,
}

/// Calls `run` and turns a panic into an error. The error message begins with `policy`, the policy's label.
pub fn guarded<T>(policy: &str, run: impl FnOnce() -> T) -> Result<T> {
    // A run owns all data that it changes. So after a panic no half-changed data remain.
    catch_unwind(AssertUnwindSafe(run)).map_err(|thrown| problem(policy, &*thrown))
}

fn problem(policy: &str, thrown: &(dyn Any + Send)) -> Box<Problem> {
    if let Some(Raised { what, help }) = thrown.downcast_ref() {
        return Problem::bad_input(format!("{policy}: {what}")).help(help);
    }
    let words = thrown.downcast_ref::<String>().map(String::as_str).or_else(|| thrown.downcast_ref::<&str>().copied());
    Problem::failed(format!("{policy}: panicked: {}", words.unwrap_or("no message")))
        .help("that is a mistake in the policy, or in Foretoken")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::problem::Exit;
    use std::panic::resume_unwind;

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(guarded("p", || 3).unwrap(), 3);
        let thrown = |what: Box<dyn Any + Send>| guarded::<()>("p", || resume_unwind(what)).unwrap_err();
        let problem = thrown(Box::new(Raised { what: "line 3: no".into(), help: "mend it".into() }));
        assert_eq!(
            (problem.exit, problem.message(), problem.help_text()),
            (Exit::BadInput, "p: line 3: no", "mend it")
        );
        let panicked = thrown(Box::new("out of range"));
        assert_eq!((panicked.exit, panicked.message()), (Exit::Failed, "p: panicked: out of range"));
        assert!(thrown(Box::new(7)).message().ends_with("no message"));
    }
}
