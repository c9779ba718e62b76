//! Repeats the schedule of an observed run both ways, synchronous and asynchronous, and says which one the server's log
//! shows. The times of steps do not tell it: an asynchronous server logs how long it waited for a step.

use crate::calibrate::replay::replay_within;
use crate::calibrate::source::Source;
use foretoken_profiler::Calibrated;
use foretoken_sim::EngineConfig;

/// A schedule is repeated at most so often that about this number of steps is simulated for each order.
const STEPS: usize = 100_000;

/// How far the log of an observed run agrees with its repeated schedules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedules {
    pub run: String,
    /// Number of steps in the log of the run.
    pub steps: usize,
    /// Number of steps before the first that differs from the synchronous schedule.
    pub synchronous: usize,
    /// Number of steps before the first that differs from the asynchronous schedule.
    pub asynchronous: usize,
    /// Whether the run's experiment says that the server schedules asynchronously; `None` if it does not say.
    pub stated: Option<bool>,
}

impl Schedules {
    /// Repeats the schedule of an observed run both ways. `None` if the log or the answers do not allow it, for example
    /// because the server does not report its rounds.
    pub fn of(source: &Source, engine: &EngineConfig, cost: &Calibrated) -> Option<Schedules> {
        let engine = source.engine.as_ref().unwrap_or(engine);
        let steps = source.run.steps.len();
        let attempts = (STEPS / steps.max(1)).clamp(2, 64);
        let equal = |asynchronous| {
            let engine = EngineConfig { async_scheduling: Some(asynchronous), ..engine.clone() };
            // Settings that the engine refuses in one of the two orders are not the server's.
            let replayed = replay_within(source, &engine, cost, source.k?, attempts).ok()?;
            Some(replayed?.equal_steps)
        };
        let (synchronous, asynchronous) = (equal(false)?, equal(true)?);
        let stated = source.engine.as_ref().and_then(|e| e.async_scheduling);
        Some(Schedules { run: source.name(), steps, synchronous, asynchronous, stated })
    }

    /// True if the log shows asynchronous scheduling, false if it shows synchronous scheduling. `None` if both
    /// schedules agree with the log equally long, or none of them for half of it.
    pub fn shows_asynchronous(&self) -> Option<bool> {
        let (least, most) = (self.synchronous.min(self.asynchronous), self.synchronous.max(self.asynchronous));
        (most > least && 2 * most >= self.steps).then_some(self.asynchronous > self.synchronous)
    }

    /// A line that says which schedule fits; `None` if the log does not show it.
    pub fn in_words(&self) -> Option<String> {
        let Schedules { run, steps, synchronous, asynchronous, .. } = self;
        let order = word(self.shows_asynchronous()?);
        Some(format!(
            "{run}: the log is that of {order} scheduling ({synchronous} of {steps} steps repeated synchronously, \
             {asynchronous} asynchronously)"
        ))
    }

    /// A line that says which schedule fits the logs of several runs; `None` if no log shows it.
    pub fn summary(all: &[Schedules]) -> Option<String> {
        let of = |order: bool| all.iter().filter(|s| s.shows_asynchronous() == Some(order)).count();
        let shown: Vec<String> = [(of(false), false), (of(true), true)]
            .into_iter()
            .filter(|(runs, _)| *runs > 0)
            .map(|(runs, order)| format!("{} in {runs} of {} runs", word(order), all.len()))
            .collect();
        (!shown.is_empty()).then(|| format!("schedule of steps       {}", shown.join(", ")))
    }

    /// A warning if the log shows another order than the experiment states; else `None`.
    pub fn warning(&self) -> Option<String> {
        let shown = self.shows_asynchronous()?;
        // vLLM schedules asynchronously by default. But if the experiment does not say it, a calibration takes the
        // server as synchronous.
        if shown == self.stated.unwrap_or(false) {
            return None;
        }
        let says = match self.stated {
            Some(stated) => format!("says {}", word(stated)),
            None => "does not say so".to_owned(),
        };
        Some(format!(
            "{}, and its experiment {says}: set engine.async_scheduling={shown} in the experiment, or see how the \
             server was started",
            self.in_words()?
        ))
    }
}

fn word(asynchronous: bool) -> &'static str {
    if asynchronous { "asynchronous" } else { "synchronous" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::calibration::Calibration;
    use std::path::Path;

    /// A recorded run of vLLM 0.32.0 for CPUs, which scheduled synchronously, with draft length `k`. `stated` is what
    /// its experiment says of the order.
    fn recorded(k: u32, stated: Option<bool>) -> Source {
        let name = format!("fixtures/vllm-0.32-k{k}.obs");
        let open = || Source::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join(&name)).unwrap();
        let (mut source, engine) = (open(), Calibration::of(vec![open()], vec![]).unwrap().engine);
        source.engine = Some(EngineConfig {
            max_num_seqs: 8,
            max_num_batched_tokens: 256,
            max_model_len: 512,
            prefix_caching: false,
            async_scheduling: stated,
            ..engine
        });
        source
    }

    #[test]
    fn a_synchronous_log_under_an_asynchronous_name_is_found() {
        let of = |k, stated| Calibration::of(vec![recorded(k, stated)], vec![]).unwrap();
        let about = |c: &Calibration| c.warnings.iter().find(|w| w.contains(" scheduling (")).cloned();
        let honest = of(3, Some(false));
        let shown = honest.schedules[0].clone();
        assert_eq!((shown.synchronous, shown.shows_asynchronous()), (shown.steps, Some(false)), "{shown:?}");
        let summary = Schedules::summary(&honest.schedules);
        assert_eq!(summary.unwrap(), "schedule of steps       synchronous in 1 of 1 runs");
        assert_eq!((about(&honest), about(&of(3, None))), (None, None));
        let (wrong, all) = (of(3, Some(true)), shown.steps);
        let warned = about(&wrong).unwrap();
        let said = format!("the log is that of synchronous scheduling ({all} of {all} steps repeated synchronously");
        assert!(warned.contains(&said), "{warned}");
        assert!(warned.contains("its experiment says asynchronous: set engine.async_scheduling=false"), "{warned}");
        // Without drafts, an asynchronous scheduler knows at once how long an answer gets, so both schedules are equal.
        let plain = of(0, Some(true));
        let shown = &plain.schedules[0];
        assert_eq!((shown.synchronous, shown.asynchronous), (shown.steps, shown.steps));
        assert_eq!((shown.shows_asynchronous(), about(&plain)), (None, None));
    }

    #[test]
    fn schedules_that_agree_equally_long_show_nothing() {
        let of = |synchronous, asynchronous, stated| Schedules {
            run: "k3".into(),
            steps: 100,
            synchronous,
            asynchronous,
            stated,
        };
        assert_eq!(of(100, 100, Some(true)).warning(), None);
        assert_eq!(of(10, 40, Some(false)).warning(), None, "none of them for half of it");
        let warned = of(10, 90, None).warning().unwrap();
        assert!(warned.starts_with("k3: the log is that of asynchronous scheduling (10 of 100 steps"), "{warned}");
        assert!(warned.contains("its experiment does not say so: set engine.async_scheduling=true"), "{warned}");
        assert_eq!(of(10, 90, Some(true)).warning(), None);
    }
}
