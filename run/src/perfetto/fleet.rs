//! A fleet in a timeline: a process for each replica, the router's decisions, the lives of replicas that boot and
//! drain, and arrows from each request to the step in which a replica first ran it.

use super::event::Event;
use super::lanes::Placed;
use super::recorded::{ROUTER, Recorded};
use super::steps;
use foretoken_report::Route;
use foretoken_sim::metrics::Scaled;
use foretoken_sim::{RequestRecords, StepRecord, Time};
use serde_json::{Value, json};

/// The process id of replica 0 in the timeline of a fleet. Replica n has this number + n.
const FIRST_REPLICA: u32 = 10;
const SENT: (u32, u32) = (ROUTER, 1);
const SCALING: (u32, u32) = (ROUTER, 2);
/// The thread id, in a replica's process, of the timeline's row that shows when the replica boots, serves and drains.
const LIFE: u32 = 4;

/// The fleet of the run that a timeline shows.
pub struct Fleet {
    /// The name of the router, which chooses the replica of each request.
    pub router: String,
    pub names: Vec<String>,
    /// For each step of the run, the index of the replica that made the step.
    pub by: Vec<u32>,
    /// For each request, the replica that served it, and when its prompt's KV went from a prefill replica to a decode
    /// replica.
    pub routes: Vec<Route>,
    /// How the fleet grew and shrank; `None` for a fleet of a fixed size.
    pub scaled: Option<Scaled>,
}

fn process(replica: u32) -> u32 {
    FIRST_REPLICA + replica
}

impl Fleet {
    fn name(&self, replica: u32) -> String {
        self.names.get(replica as usize).cloned().unwrap_or_else(|| format!("replica {replica}"))
    }

    /// Adds the events of the router and of the replicas to the timeline. `shown` are the steps in the timeline;
    /// `first` is the index of the first shown step among all steps of the run.
    pub fn add(&self, events: &mut Vec<Event>, (first, shown): (usize, &[StepRecord]), recorded: &Recorded) {
        let named = |on, fact: &str, name: &str| Event::about(fact, on, json!({ "name": name }));
        let title = format!("router {}: {} ({})", self.router, recorded.key, recorded.source);
        events.push(named((ROUTER, 0), "process_name", &title));
        events.push(Event::about("process_sort_index", (ROUTER, 0), json!({ "sort_index": 0 })));
        events.push(named(SENT, "thread_name", "requests sent"));
        let mut of_each: Vec<Vec<StepRecord>> = vec![Vec::new(); self.names.len()];
        for (step, &replica) in shown.iter().zip(&self.by[first..]) {
            of_each[replica as usize].push(*step);
        }
        for (replica, own) in (0..).zip(&of_each) {
            steps::names(events, process(replica), &self.name(replica), replica + 1, recorded.behind.is_some());
            events.extend(recorded.behind.map(|_| steps::name_of_behind(process(replica))));
            steps::add(events, own, recorded, process(replica));
        }
    }

    /// For the request with index `i`: when the transfer of its prompt's KV to another replica began and ended, and its
    /// bytes; `None` if nothing was transferred.
    pub fn transfer(&self, i: usize) -> Option<(Time, Time, u64)> {
        self.routes[i].1.map(|hand_off| (hand_off.begun, hand_off.arrived, hand_off.bytes))
    }

    /// Adds the router's decisions between the times `from` and `to` to the timeline.
    pub fn add_decisions(&self, events: &mut Vec<Event>, requests: &RequestRecords, (from, to): (Time, Time)) {
        for (i, (replica, hand_off)) in self.routes.iter().enumerate() {
            let at = requests.arrival[i];
            let Some(replica) = replica.filter(|_| from <= at && at < to) else { continue };
            let prompt = hand_off.map(|hand_off| u32::from(hand_off.replica));
            let over = prompt.map_or_else(String::new, |prompt| format!("{}, ", self.name(prompt)));
            let name = format!("request {i} → {over}{}", self.name(replica));
            let args = json!({ "request": i, "replica": replica, "prefill_replica": prompt });
            events.push(Event::instant(&name, SENT, at, args));
        }
        if let Some(scaled) = &self.scaled {
            self.add_scaling(events, scaled, (from, to));
        }
    }

    fn add_scaling(&self, events: &mut Vec<Event>, scaled: &Scaled, (from, to): (Time, Time)) {
        events.push(Event::about("thread_name", SCALING, json!({ "name": "scaling" })));
        for decision in scaled.decisions.iter().filter(|decision| from <= decision.at && decision.at < to) {
            let before = decision.serving + decision.booting;
            let name = format!("{before} → {} replicas", decision.wished);
            let args = json!({ "serving": decision.serving, "booting": decision.booting, "reason": decision.reason });
            events.push(Event::instant(&name, SCALING, decision.at, args));
        }
        for (at, [booting, serving, draining]) in scaled.over_time() {
            if from <= at && at < to {
                let counts = json!({ "booting": booting, "serving": serving, "draining": draining });
                events.push(Event::counter("replicas", ROUTER, at, counts));
            }
        }
        for (replica, life) in (0..).zip(&scaled.lives) {
            let on = (process(replica), LIFE);
            events.push(Event::about("thread_name", on, json!({ "name": "life" })));
            let phases = life.phases(scaled.end).map(|at| at.clamp(from, to));
            for (name, i) in [("boots", 0), ("serves", 1), ("drains", 2)] {
                if phases[i] < phases[i + 1] {
                    events.push(Event::span(name, on, phases[i], phases[i + 1], Value::Null));
                }
            }
        }
    }

    /// Adds an arrow from each request in `placed` (requests that begin to run in the time that the timeline shows) to
    /// the step in which a replica first ran it, and from there to the step in which its decode replica gave the first
    /// token. Leaves out steps that the timeline does not show.
    pub fn add_arrows(
        &self,
        events: &mut Vec<Event>,
        placed: &[Placed],
        requests: &RequestRecords,
        (first, shown): (usize, &[StepRecord]),
    ) {
        let mut of_each: Vec<Vec<(Time, Time)>> = vec![Vec::new(); self.names.len()];
        for (step, &replica) in shown.iter().zip(&self.by[first..]) {
            of_each[replica as usize].push((step.start, step.end));
        }
        // Returns `at` if a step of the replica runs at this time, else the start of the replica's next step.
        let step_at = |replica: u32, at: Time| {
            let steps = of_each.get(replica as usize)?;
            let next = steps.partition_point(|(start, _)| *start <= at);
            let runs = next.checked_sub(1).map(|i| steps[i]).filter(|(_, end)| at < *end);
            runs.or_else(|| steps.get(next).copied()).map(|(start, _)| start.max(at))
        };
        for &Placed { request, on } in placed {
            let (Some(replica), hand_off) = self.routes[request] else { continue };
            let scheduled = requests.first_scheduled[request];
            let prompt_on = hand_off.map_or(replica, |hand_off| u32::from(hand_off.replica));
            let starts = shown.first().map_or(Time::ZERO, |step| step.start);
            let Some(at) = step_at(prompt_on, scheduled).filter(|_| scheduled >= starts) else { continue };
            let id = request as u64;
            events.push(Event::arrow_start("first run", on, scheduled, id));
            let token = requests.first_token[request];
            let output = hand_off.and_then(|_| step_at(replica, Time(token.0.saturating_sub(1))));
            match output.filter(|output| *output >= at && *output <= token) {
                Some(output) => {
                    events.push(Event::arrow_on("first run", steps::row(process(prompt_on)), at, id));
                    events.push(Event::arrow_end("first run", steps::row(process(replica)), output, id));
                }
                None => events.push(Event::arrow_end("first run", steps::row(process(prompt_on)), at, id)),
            }
        }
    }
}
