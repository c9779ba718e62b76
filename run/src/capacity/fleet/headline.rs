//! The answer of the search for the smallest fleet in sentences: which fleet to run and what it costs. For comparison,
//! a sentence has the cost of a fleet without drafting. If the recommended fleet does not draft, the sentence has the
//! cost of the cheapest fleet with drafting instead.

use super::answer::{Alternative, FleetAnswer, PolicyFleet};
use crate::capacity::words::{digits, swept_in_words};
use crate::host_band::DEPENDS;

impl FleetAnswer {
    /// The answer of the search for the smallest fleet in sentences: first the recommended fleet, then a sentence for
    /// each combination of swept values if there are several combinations.
    pub fn said(&self) -> Vec<String> {
        let groups = self.at_each_value();
        let single = groups.len() == 1;
        let mut lines: Vec<String> = Vec::new();
        if !single {
            let all: Vec<&PolicyFleet> = self.fleets.iter().collect();
            let said = |best: &PolicyFleet| {
                self.with_host(&swept_in_words(&best.sweep), self.recommendation(best, &all, true))
            };
            lines.extend(self.best(&all).map(said));
        }
        for (at, fleets) in &groups {
            let said = match self.best(fleets) {
                Some(best) => self.with_host(at, self.recommendation(best, fleets, false)),
                None => format!("no fleet of up to {} replicas keeps the bounds.", self.most_replicas),
            };
            lines.push(if at.is_empty() { capital(&said) } else { format!("{at}: {said}") });
        }
        lines
    }

    /// The recommendation `said` at these swept values. If host time turns it around, both answers.
    fn with_host(&self, at: &str, said: String) -> String {
        match self.host.iter().find(|host| host.at == at && host.turns) {
            Some(host) => format!("{DEPENDS} Without host time {said} {}", host.in_words()),
            None => said,
        }
    }

    /// The cheapest fleet that carries the load, among fleets whose policy and router see no hidden truth (such as
    /// which draft tokens will be accepted). If several fleets have the least price, takes the first of these fleets
    /// that drafts and whose requests take less time than without drafting. If there is no such fleet, takes the first
    /// of the cheapest fleets in `fleets`.
    pub(super) fn best<'a>(&self, fleets: &[&'a PolicyFleet]) -> Option<&'a PolicyFleet> {
        let able = || fleets.iter().copied().filter(|f| !f.bound && f.cost_hour.is_some());
        let least = able().filter_map(|f| f.cost_hour).reduce(f64::min)?;
        let cheapest = || able().filter(|f| f.cost_hour == Some(least));
        let faster = cheapest().filter(|f| !f.baseline).find(|f| self.gain(f).is_some_and(|gain| gain > 1.0));
        faster.or_else(|| cheapest().next())
    }

    /// The entry of `ways` (three compared fleets at each combination of swept values) that has the policy and the
    /// swept values of `f`, and `replicas` replicas.
    fn way(&self, f: &PolicyFleet, replicas: u32) -> Option<&Alternative> {
        let at = swept_in_words(&f.sweep);
        let policy = if f.baseline { "no drafts" } else { &f.policy };
        self.ways.iter().find(|way| way.at == at && way.replicas == replicas && way.what.starts_with(policy))
    }

    /// The speedup by the drafting of the fleet `f`: mean end-to-end latency without drafting / mean end-to-end
    /// latency with drafting. The two fleets have as many replicas as `f`. `None` if one of the two latencies was not
    /// measured.
    fn gain(&self, f: &PolicyFleet) -> Option<f64> {
        let replicas = f.replicas?;
        let plain = self.fleets.iter().find(|other| other.baseline && other.sweep == f.sweep)?;
        Some(self.way(plain, replicas)?.e2e_mean_s? / self.way(f, replicas)?.e2e_mean_s?)
    }

    /// A sentence that recommends the fleet `best` among `fleets`. If `with_values` is true, the sentence names the
    /// swept values of `best`.
    fn recommendation(&self, best: &PolicyFleet, fleets: &[&PolicyFleet], with_values: bool) -> String {
        let at = swept_in_words(&best.sweep);
        let at = if with_values && !at.is_empty() { format!(" at {at}") } else { String::new() };
        let (Some(cost), Some(gpus)) = (best.cost_hour, best.gpus) else { return String::new() };
        let tokens = best.cost_mtok.map_or(String::new(), |cost| format!(" ({cost:.2} for a million output tokens)"));
        let carry = if gpus == 1 { "carries" } else { "carry" };
        let alike = |f: &&PolicyFleet| !f.bound && f.sweep == best.sweep && f.cost_hour == best.cost_hour;
        let least = if fleets.iter().copied().filter(alike).count() > 1 { "as little as any" } else { "the least" };
        let mut said = format!("{}{at} {carry} this load for {cost:.2} an hour{tokens}, {least}.", best.called());
        let plain = fleets.iter().find(|f| f.baseline && f.sweep == best.sweep && !best.baseline);
        if let Some(plain) = plain {
            said += &match (plain.replicas, plain.cost_hour) {
                (Some(n), _) if Some(n) == best.replicas => match self.times(best) {
                    Some(times) => format!(" No drafting needs as many; with drafts requests are {times}."),
                    None => " No drafting needs as many.".to_owned(),
                },
                (Some(n), Some(other)) => {
                    let percent = 100.0 * (other / cost - 1.0);
                    let by = format!("{:.0}\u{a0}% {}", percent.abs(), if percent > 0.0 { "more" } else { "less" });
                    format!(" No drafting needs {n} replicas and costs {other:.2} an hour, {by}.")
                }
                _ => format!(" No drafting keeps the bounds on no fleet of up to {} replicas.", self.most_replicas),
            };
        } else if best.baseline {
            said += self.drafts_lose(fleets, best).as_str();
        }
        said
    }

    /// A text such as `1.30× as fast`: mean E2E without drafting / mean E2E with the drafting of the fleet `f`, both
    /// with the replicas of `f`.
    fn times(&self, f: &PolicyFleet) -> Option<String> {
        let replicas = f.replicas?;
        let plain = self.fleets.iter().find(|other| other.baseline && other.sweep == f.sweep)?;
        let (without, with) = (self.way(plain, replicas)?.e2e_mean_s?, self.way(f, replicas)?.e2e_mean_s?);
        let seconds = format!("{} s instead of {} s on average", digits(with, with), digits(without, without));
        Some(format!("{:.2}× as fast ({seconds})", without / with))
    }

    /// A sentence on the cheapest fleet with drafting. This fleet costs more than the fleet `best`, which does not
    /// draft, or it has the same price and is not faster.
    fn drafts_lose(&self, fleets: &[&PolicyFleet], best: &PolicyFleet) -> String {
        let drafts = fleets.iter().filter(|f| !f.baseline && !f.bound && f.sweep == best.sweep);
        let cost = |f: &&&PolicyFleet| f.cost_hour.unwrap_or(f64::INFINITY);
        let Some(drafting) = drafts.min_by(|a, b| cost(a).total_cmp(&cost(b))) else { return String::new() };
        match (drafting.replicas, drafting.cost_hour) {
            (Some(n), _) if Some(n) == best.replicas => {
                format!(" {} needs as many and is not faster.", capital(&drafting.policy))
            }
            (Some(n), Some(cost)) => format!(" {} needs {n} replicas, {cost:.2} an hour.", capital(&drafting.policy)),
            _ => " No drafting policy has a fleet that keeps the bounds.".to_owned(),
        }
    }
}

impl PolicyFleet {
    /// The fleet as text: its GPUs and its policy, such as `6 GPUs (3 × 2) with fixed-3`.
    fn called(&self) -> String {
        let with = if self.baseline { "without drafts".to_owned() } else { format!("with {}", self.policy) };
        let n = self.replicas.unwrap_or_default();
        let gpus = match (n * self.gpus_of_one, self.gpus_of_one) {
            (1, _) => "1 GPU".to_owned(),
            (all, 1) => format!("{all} GPUs"),
            (all, one) => format!("{all} GPUs ({n} × {one})"),
        };
        format!("{gpus} {with}")
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::super::answer::{LoadOverTime, SeedResult};
    use super::*;
    use crate::spec::capacity::CapacitySpec;
    use foretoken_sim::metrics::Interval;

    fn fleet(policy: &str, replicas: Option<u32>) -> PolicyFleet {
        PolicyFleet {
            policy: policy.into(),
            baseline: policy == "autoregressive",
            bound: false,
            router: "random".into(),
            sweep: Vec::new(),
            gpus_of_one: 2,
            price_gpu_hour: 2.5,
            replicas,
            over_seeds: None,
            gpus: replicas.map(|n| 2 * n),
            cost_hour: replicas.map(|n| 5.0 * f64::from(n)),
            cost_mtok: None,
            seeds: Vec::<SeedResult>::new(),
        }
    }

    fn way(what: &str, replicas: u32, e2e_mean_s: f64) -> Alternative {
        let kept = Interval::of(&[0.99]).unwrap();
        let e2e_mean_s = Some(e2e_mean_s);
        let (at, what) = (String::new(), format!("{what}, {replicas} replicas"));
        Alternative { at, what, replicas, cost_hour: 1.0, kept, ttft_p99_s: None, tpot_p99_s: None, e2e_mean_s }
    }

    fn said(fleets: Vec<PolicyFleet>, ways: Vec<Alternative>) -> String {
        let load = LoadOverTime { window_s: 60.0, req_s: vec![1.0], span_s: 60.0, requests: 61, counted: 61 };
        let (name, source, headlines) = ("x".into(), "simulated".into(), Vec::new());
        let (warnings, crossovers) = (Vec::new(), Vec::new());
        let answer = FleetAnswer {
            name,
            source,
            headlines,
            share: 0.9,
            most_replicas: 8,
            load,
            asked: CapacitySpec::default(),
            warnings,
            fleets,
            ways,
            crossovers,
            host: Vec::new(),
        };
        answer.said().join("|")
    }

    #[test]
    fn the_cheapest_fleet_is_recommended() {
        let two = said(vec![fleet("autoregressive", Some(4)), fleet("fixed-3", Some(3))], Vec::new());
        assert_eq!(
            two,
            "6 GPUs (3 × 2) with fixed-3 carry this load for 15.00 an hour, the least. No drafting needs 4 replicas and costs \
             20.00 an hour, 33\u{a0}% more."
        );
        let none = said(vec![fleet("autoregressive", None), fleet("fixed-3", None)], Vec::new());
        assert_eq!(none, "No fleet of up to 8 replicas keeps the bounds.");
    }

    #[test]
    fn at_one_price_the_faster_fleet_wins() {
        let fleets = || vec![fleet("autoregressive", Some(3)), fleet("fixed-3", Some(3))];
        let fast = said(fleets(), vec![way("no drafts", 3, 1.5), way("fixed-3", 3, 1.0), way("no drafts", 4, 1.2)]);
        assert!(
            fast.starts_with("6 GPUs (3 × 2) with fixed-3 carry this load for 15.00 an hour, as little as any.")
                && fast.contains("with drafts requests are 1.50× as fast (1.00 s instead of 1.50 s"),
            "{fast}"
        );
        let slow = said(fleets(), vec![way("no drafts", 3, 1.0), way("fixed-3", 3, 1.5)]);
        assert!(
            slow.starts_with("6 GPUs (3 × 2) without drafts") && slow.contains("as many and is not faster"),
            "{slow}"
        );
    }
}
