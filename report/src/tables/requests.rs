//! `requests.parquet`: one row per request and run.

use super::column::{Column, column};
use super::writer::{ROWS, Table};
use crate::{Key, ReportError};
use foretoken_sim::metrics::{HandOff, Pieces, Replicas};
use foretoken_sim::{Outcome, RequestRecords, Time};
use parquet::data_type::ByteArray;
use std::ops::Range;
use std::path::Path;

/// Writes `requests.parquet` run by run, and the requests of a run in pieces, so that only one piece is in memory at a
/// time.
///
/// Columns after the key columns (policy, swept settings, seed): `request` (index in order of arrival), `arrival_s`,
/// `first_scheduled_s`, `first_token_s`, `finish_s` (instants on the run's clock), `queue_s`, `ttft_s`, `tpot_s`,
/// `e2e_s` (durations), `emitted`, `drafted`, `verified`, `accepted`, `cached_tokens` (tokens), `rounds` (decode steps
/// of the request that verified draft tokens), `preemptions` (counts) and `outcome` (`in-flight`, `finished` or
/// `rejected`).
///
/// If a run has a fleet, also `replica`, the index of the replica that served the request. If prefill replicas compute
/// prompts for other replicas, also `prefill_replica` (null if the request's own replica computed the prompt),
/// `prompt_computed_s`, `transfer_start_s`, `transfer_end_s` (instants) and `transfer_bytes` (of the KV).
///
/// An instant that did not come and a duration that did not end are null. Only finished requests have `tpot_s` and
/// `e2e_s`.
pub struct RequestsWriter {
    table: Table,
    fleet: FleetColumns,
}

/// Which columns about a fleet the table `requests.parquet` has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetColumns {
    /// No columns: a single server serves all requests.
    None,
    Replica,
    /// Also the columns with the prefill replica, and with the transfer of KV from the prefill replica.
    HandOff,
}

impl RequestsWriter {
    /// Starts the file. `keys` are the keys of all runs that will be pushed. `fleet` are the columns about a fleet: all
    /// columns that at least one of these runs needs.
    pub fn create<'a>(
        path: &Path,
        keys: impl IntoIterator<Item = &'a Key>,
        fleet: FleetColumns,
    ) -> Result<RequestsWriter, ReportError> {
        let columns = columns(&RequestRecords::default(), 0, 0..0, (fleet, &Replicas::default()));
        Ok(RequestsWriter { table: Table::create(path, keys, columns)?, fleet })
    }

    /// Adds the requests of a run. `replicas` says for each request which replicas served it; it is empty without a
    /// fleet.
    pub fn push(&mut self, key: &Key, records: &dyn Pieces, replicas: &Replicas) -> Result<(), ReportError> {
        let (mut before, mut result) = (0, Ok(()));
        records.each(&mut |piece| {
            if result.is_ok() {
                result = self.push_piece(key, piece, before, replicas);
            }
            before += piece.len();
        });
        result
    }

    /// Adds a piece of a run's requests. `before` is the number of requests in the pieces before it.
    fn push_piece(
        &mut self,
        key: &Key,
        piece: &RequestRecords,
        before: usize,
        replicas: &Replicas,
    ) -> Result<(), ReportError> {
        (0..piece.len()).step_by(ROWS).try_for_each(|from| {
            let rows = from..piece.len().min(from + ROWS);
            let columns = columns(piece, before, rows.clone(), (self.fleet, replicas));
            self.table.write(&vec![key; rows.len()], columns)
        })
    }

    /// Completes the file. If the writer is dropped without this call, no new file is left, and an earlier file stays.
    pub fn finish(self) -> Result<(), ReportError> {
        self.table.finish()
    }
}

/// The columns of the table for the requests `rows` of a piece. `before` is the number of requests in the pieces before
/// it.
fn columns(r: &RequestRecords, before: usize, rows: Range<usize>, fleet: (FleetColumns, &Replicas)) -> Vec<Column> {
    let happened = |t: Time| t != Time::MAX;
    let instant = |name, of: &[Time]| column(name, of[rows.clone()].iter().map(|&t| happened(t).then(|| t.as_s())));
    let span = |name, of: &dyn Fn(usize) -> Option<f64>| column(name, rows.clone().map(of));
    let count = |name, of: &[u32]| column(name, of[rows.clone()].iter().copied());
    let [in_flight, finished, rejected] = ["in-flight", "finished", "rejected"].map(ByteArray::from);
    let outcome = |o: &Outcome| match o {
        Outcome::InFlight => in_flight.clone(),
        Outcome::Finished => finished.clone(),
        Outcome::Rejected => rejected.clone(),
    };
    let index = |i: usize| u32::try_from(before + i).expect("request ids are u32");
    let mut all = vec![
        column("request", rows.clone().map(index)),
        instant("arrival_s", &r.arrival),
        instant("first_scheduled_s", &r.first_scheduled),
        instant("first_token_s", &r.first_token),
        instant("finish_s", &r.finish),
        span("queue_s", &|i| happened(r.first_scheduled[i]).then(|| r.queue_s(i))),
        span("ttft_s", &|i| happened(r.first_token[i]).then(|| r.ttft_s(i))),
        span("tpot_s", &|i| r.finished(i).then(|| r.tpot_s(i)).flatten()),
        span("e2e_s", &|i| r.finished(i).then(|| r.e2e_s(i))),
        count("emitted", &r.emitted),
        count("drafted", &r.drafted),
        count("verified", &r.verified),
        count("accepted", &r.accepted),
        count("cached_tokens", &r.cached_tokens),
        count("rounds", &r.rounds),
        count("preemptions", &r.preemptions),
        column("outcome", r.outcome[rows.clone()].iter().map(outcome)),
    ];
    all.extend(of_fleet(before + rows.start..before + rows.end, fleet));
    all
}

/// The columns that name the replicas of each request, and the columns on the transfer of its KV between replicas.
fn of_fleet(rows: Range<usize>, (columns, replicas): (FleetColumns, &Replicas)) -> Vec<Column> {
    let index = |replica: u16| Some(u32::from(replica)).filter(|_| replica != u16::MAX);
    let routed = |i: usize| replicas.routed.get(i).copied().and_then(index);
    let hand_off = |i: usize| replicas.hand_offs.get(i).copied().unwrap_or_default();
    let instant = |name, of: fn(HandOff) -> Time| {
        column(name, rows.clone().map(|i| Some(of(hand_off(i))).filter(|&t| t != Time::MAX).map(Time::as_s)))
    };
    let replica = || column("replica", rows.clone().map(routed));
    match columns {
        FleetColumns::None => Vec::new(),
        FleetColumns::Replica => vec![replica()],
        FleetColumns::HandOff => vec![
            replica(),
            column("prefill_replica", rows.clone().map(|i| index(hand_off(i).replica))),
            instant("prompt_computed_s", |h| h.computed),
            instant("transfer_start_s", |h| h.begun),
            instant("transfer_end_s", |h| h.arrived),
            column("transfer_bytes", rows.clone().map(|i| hand_off(i).bytes)),
        ],
    }
}
