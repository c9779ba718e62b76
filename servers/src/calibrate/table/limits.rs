//! Holds the numbers of a table of benchmark results against what a server can do: bounds for each number, Little's
//! law, and a first token that comes with the last.

use super::cell::{Accepted, Cell, CellLoad};

/// The shortest time of a step that is believed, seconds. A step launches dozens of kernels of a few microseconds each.
pub const SHORTEST_PASS_S: f64 = 50e-6;
/// The longest time of a step that is believed, seconds.
const LONGEST_PASS_S: f64 = 100.0;
/// The longest time to a first token that is believed, seconds: a day.
const LONGEST_WAIT_S: f64 = 86_400.0;
/// Throughput, TTFT and TPOT of a row may contradict each other up to this factor. Means over requests of several
/// lengths and the ends of a run explain less.
const APART: f64 = 3.0;
/// Without TTFT, the time before the first token is not known. Then requests in flight, by throughput and TPOT, may be
/// fewer than the clients by this factor.
const APART_WITHOUT_TTFT: f64 = 100.0;
/// A TTFT of at least this share of the end-to-end latency is that latency, where answers have several tokens.
const WHOLE: f64 = 0.98;

const UNITS: &str = "tok_s is output tokens per second, ttft_ms and tpot_ms are in milliseconds";

/// Finds a number of a row that no server can have. Returns (what is wrong, what to do).
pub fn impossible(cell: &Cell) -> Option<(String, &'static str)> {
    beyond_bounds(cell).or_else(|| contradicting(cell)).map(|what| (what, UNITS))
}

/// Finds a time of a step that is shorter or longer than any server's, or a time to first token of more than a day.
fn beyond_bounds(cell: &Cell) -> Option<String> {
    let a_round = 1.0 + cell.accepted.as_ref().map_or(0.0, Accepted::mean);
    let of_throughput = cell.tok_s.zip(clients(cell)).map(|(tok_s, n)| ("tok_s", tok_s, n * a_round / tok_s));
    let of_tpot = cell.tpot_s.map(|tpot| ("tpot_ms", ms(tpot), tpot * a_round));
    for (column, value, step_s) in of_throughput.into_iter().chain(of_tpot) {
        let bound = match step_s {
            s if s < SHORTEST_PASS_S => format!("no step is shorter than {} ms", 1e3 * SHORTEST_PASS_S),
            s if s > LONGEST_PASS_S => format!("no step is longer than {LONGEST_PASS_S} s"),
            _ => continue,
        };
        return Some(format!("{column} = {value} makes steps of {:.3e} s, and {bound}", step_s));
    }
    let wait = cell.ttft_s.filter(|s| !(SHORTEST_PASS_S..=LONGEST_WAIT_S).contains(s))?;
    Some(format!("ttft_ms = {} is no time to a first token: it is shorter than a step or longer than a day", ms(wait)))
}

/// Finds numbers of a row that contradict each other.
fn contradicting(cell: &Cell) -> Option<String> {
    if let (Some(ttft), Some(tpot)) = (cell.ttft_s, cell.tpot_s)
        && ttft * APART < tpot
    {
        let (ttft, tpot) = (ms(ttft), ms(tpot));
        return Some(format!(
            "ttft_ms = {ttft} and tpot_ms = {tpot}: a first token takes a step too, and cannot come that early"
        ));
    }
    let tok_s = cell.tok_s?;
    let tpot = cell.tpot_s?;
    let Some(clients) = clients(cell) else {
        let CellLoad::Rate(rate) = cell.load else { return None };
        return (tok_s > APART * rate * cell.output).then(|| {
            format!("tok_s = {tok_s}, and {rate} requests/s of {} tokens ask for {}", cell.output, rate * cell.output)
        });
    };
    // Little's law: requests in flight are the requests that end in a second, times the seconds that each takes.
    let takes = cell.ttft_s.map_or(cell.output * tpot, |ttft| ttft + (cell.output - 1.0).max(0.0) * tpot);
    let busy = tok_s / cell.output * takes;
    let least = if cell.ttft_s.is_some() { APART } else { APART_WITHOUT_TTFT };
    (busy > APART * clients || busy * least < clients).then(|| {
        let ttft = cell.ttft_s.map_or(String::new(), |s| format!(", ttft_ms = {}", ms(s)));
        format!(
            "tok_s = {tok_s}{ttft} and tpot_ms = {} make {busy:.3} requests at once, and the row says {clients}",
            ms(tpot)
        )
    })
}

/// True if the time to first token of a row is the time of the whole answer, and answers have several tokens: the
/// benchmark did not stream. `e2e_s` is the measured mean end-to-end latency. Without it, the latency of a closed loop
/// follows from its throughput by Little's law.
pub fn is_not_streamed(cell: &Cell, e2e_s: Option<f64>) -> bool {
    let by_law = || Some(clients(cell)? * cell.output / cell.tok_s?);
    // A TPOT shows that tokens came one after another.
    let (Some(ttft), Some(whole), None) = (cell.ttft_s, e2e_s.or_else(by_law), cell.tpot_s) else { return false };
    // The tokens after the first take at least a step each round.
    let a_round = 1.0 + cell.accepted.as_ref().map_or(0.0, Accepted::mean);
    let several = (cell.output - 1.0) / a_round >= 1.0;
    several && ttft >= WHOLE * whole
}

/// Milliseconds as the user wrote them, without the rounding error of the conversion to seconds.
fn ms(s: f64) -> f64 {
    (1e9 * s).round() / 1e6
}

fn clients(cell: &Cell) -> Option<f64> {
    match cell.load {
        CellLoad::Clients(n) => Some(f64::from(n)),
        CellLoad::Rate(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One client at 114 tokens a second: TPOT 8.8 ms, 200 tokens in 1.75 s.
    fn cell() -> Cell {
        Cell {
            line: 2,
            from: None,
            load: CellLoad::Clients(1),
            k: 0,
            input: 300.0,
            output: 200.0,
            requests: None,
            max_num_seqs: None,
            tok_s: Some(110.0),
            ttft_s: Some(0.06),
            tpot_s: Some(8.8e-3),
            accepted: None,
        }
    }

    fn why(cell: Cell) -> Option<String> {
        impossible(&cell).map(|(what, _)| what)
    }

    #[test]
    fn values_in_another_unit_are_impossible() {
        assert_eq!(why(cell()), None);
        let minute = Cell { tok_s: Some(6600.0), ..cell() };
        assert!(why(minute).unwrap().ends_with("make 59.770 requests at once, and the row says 1"));
        let tpot_in_s = Cell { tpot_s: Some(8.8e-6), tok_s: None, ..cell() };
        assert_eq!(
            why(tpot_in_s).unwrap(),
            "tpot_ms = 0.0088 makes steps of 8.800e-6 s, and no step is shorter than 0.05 ms"
        );
        let thousands = Cell { tok_s: Some(1.1e5), ttft_s: None, tpot_s: None, ..cell() };
        assert!(why(thousands).unwrap().starts_with("tok_s = 110000 makes steps of 9.091e-6 s"));
        let hours = Cell { tok_s: Some(1e-3), ttft_s: None, tpot_s: None, ..cell() };
        assert!(why(hours).unwrap().ends_with("no step is longer than 100 s"));
        let ttft_in_s = Cell { ttft_s: Some(0.06e-3), tok_s: None, ..cell() };
        assert!(why(ttft_in_s).unwrap().contains("cannot come that early"));
        let ttft_in_ns = Cell { ttft_s: Some(6e4 * 60.0), tok_s: None, tpot_s: None, ..cell() };
        assert!(why(ttft_in_ns).unwrap().starts_with("ttft_ms = 3600000000 is no time to a first token"));
    }

    #[test]
    fn littles_law_holds_within_a_factor_of_three() {
        let busy = |times: f64| why(Cell { tok_s: Some(times * 200.0 / (0.06 + 199.0 * 8.8e-3)), ..cell() });
        assert_eq!((busy(2.9), busy(0.34)), (None, None));
        assert!(busy(3.1).is_some() && busy(0.32).is_some());
        // A long prompt takes most of the time; without TTFT it is not known.
        let long = Cell { output: 4.0, ttft_s: Some(3.0), tok_s: Some(1.3), ..cell() };
        assert_eq!((why(long.clone()), why(Cell { ttft_s: None, ..long })), (None, None));
        let open = Cell { load: CellLoad::Rate(2.0), tok_s: Some(400.0), ..cell() };
        assert_eq!(why(open.clone()), None);
        let beyond = why(Cell { tok_s: Some(24_000.0), ..open }).unwrap();
        assert_eq!(beyond, "tok_s = 24000, and 2 requests/s of 200 tokens ask for 400");
    }

    #[test]
    fn a_first_token_with_the_last_is_not_streamed() {
        let whole = Cell { load: CellLoad::Clients(8), tok_s: Some(1000.0), ttft_s: Some(1.6), tpot_s: None, ..cell() };
        assert!(is_not_streamed(&whole, None) && is_not_streamed(&whole, Some(1.6)));
        assert!(!is_not_streamed(&Cell { output: 1.0, tok_s: Some(5.0), ..whole.clone() }, Some(1.6)));
        assert!(!is_not_streamed(&Cell { ttft_s: Some(1.5), ..whole.clone() }, None));
        assert!(!is_not_streamed(&Cell { tpot_s: Some(8e-3), ..whole.clone() }, None), "its TPOT says otherwise");
        assert!(!is_not_streamed(&Cell { load: CellLoad::Rate(5.0), ..whole }, None));
    }
}
