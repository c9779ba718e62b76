//! Messages about numbers that a server reported and that cannot be true.

use crate::recordings::bounds::{MOST_TOKENS, answer_tokens, longest_answer, max_model_len, prompt_tokens};
use crate::recordings::metrics::Metrics;
use crate::recordings::recording::{Ended, Event, Recording, Tokens};
use crate::recordings::request::{ServerMetrics, rounds};
use crate::recordings::step_log::{LoggedStep, is_step};
use crate::recordings::steps::started_before;

/// Makes the messages about impossible numbers in an observed run. There is one message for each kind of number that
/// the server reported with impossible values.
pub fn doubts(recording: &Recording, metrics: &Metrics) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(n) = recording.head.server.max_model_len.filter(|n| prompt_tokens(*n).is_none()) {
        all.push(format!("the server says max_model_len = {n}: not believed (1 to {MOST_TOKENS})"));
    } else if let (Some(n), None) = (recording.head.server.max_model_len, max_model_len(recording)) {
        let longest = longest_answer(recording);
        all.push(format!(
            "the server says max_model_len = {n} and answered a request of {longest} tokens: not believed"
        ));
    }
    answers(recording, &mut all);
    log(recording, &mut all);
    all.extend(metrics.doubts.iter().map(|what| format!("/metrics says {what}: not believed")));
    all
}

/// One kind of impossible number: (how often it occurred, message about its first occurrence).
#[derive(Default)]
struct Seen(usize, Option<String>);

impl Seen {
    fn saw(&mut self, what: impl FnOnce() -> String) {
        self.0 += 1;
        self.1.get_or_insert_with(what);
    }

    fn say(self, all: &mut Vec<String>, words: impl FnOnce(usize, String) -> String) {
        if let Seen(n, Some(first)) = self {
            all.push(words(n, first));
        }
    }
}

fn answers(recording: &Recording, all: &mut Vec<String>) {
    let (mut usage, mut prompts, mut drafts) = (Seen::default(), Seen::default(), Seen::default());
    let mut last = None;
    for event in &recording.events {
        match event {
            Event::Chunk { request, tokens: Tokens::SoFar(n), .. } => {
                let asked = recording.head.asked[*request as usize].output_len;
                if answer_tokens(*n, asked).is_none() && last.replace(*request) != Some(*request) {
                    usage.saw(|| format!("{n} of at most {asked}"));
                }
            }
            Event::Ended {
                request,
                how: Ended::Finished { completion_tokens, prompt_tokens: prompt, metrics, .. },
                ..
            } => {
                let asked = recording.head.asked[*request as usize].output_len;
                if let Some(n) = completion_tokens.filter(|n| answer_tokens(*n, asked).is_none())
                    && last != Some(*request)
                {
                    usage.saw(|| format!("{n} of at most {asked}"));
                }
                if let Some(n) = prompt.filter(|n| prompt_tokens(*n).is_none()) {
                    prompts.saw(|| n.to_string());
                }
                if let Err(why) = rounds(&ServerMetrics::read(metrics.as_deref()), asked) {
                    drafts.saw(|| why);
                }
            }
            _ => {}
        }
    }
    usage.say(all, |n, first| {
        format!("the usage of {n} answers has more tokens than were asked for ({first}): not believed")
    });
    prompts.say(all, |n, first| {
        format!("the usage of {n} answers has prompts of {first} tokens: not believed (1 to {MOST_TOKENS})")
    });
    drafts.say(all, |n, first| format!("the rounds of {n} answers are not believed: {first}"));
}

fn log(recording: &Recording, all: &mut Vec<String>) {
    let mut lines = Seen::default();
    let log = recording.events.iter().filter_map(|e| if let Event::Log { lines, .. } = e { Some(lines) } else { None });
    for line in log.flatten().filter(|line| is_step(line)) {
        match LoggedStep::read(line) {
            Ok(Some(step)) if started_before(recording, &step) => {
                lines.saw(|| format!("a step of {:e} s began before the run did", step.elapsed_s));
            }
            Ok(_) => {}
            Err(why) => lines.saw(|| why),
        }
    }
    lines.say(all, |n, first| format!("{n} lines of the step log are not believed: {first}"));
}
