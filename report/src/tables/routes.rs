//! Reads which replicas served the requests of one run and made its steps, to draw a timeline.

use super::frame::Frame;
use super::read_fleet::read_scaled;
use crate::{Entry, Key, ReportError};
use foretoken_sim::Time;
use foretoken_sim::metrics::{HandOff, Scaled};
use std::path::Path;

/// The replica index in the Parquet table that stands for "no replica".
const NOWHERE: u32 = u16::MAX as u32;

/// The replicas of a request: (the replica that gives the output, the transfer of the prompt's KV from another
/// replica). The replica is `None` if the request was never sent to one. The transfer is `None` if there was no such
/// transfer.
pub type Route = (Option<u32>, Option<HandOff>);

/// The replicas of each request of a run, in order of arrival; `None` for a run without a fleet.
pub fn read_routes(folder: &Path, key: &Key) -> Result<Option<Vec<Route>>, ReportError> {
    let table = Frame::open_cell(&folder.join("requests.parquet"), key)?;
    if !table.has("replica") {
        return Ok(None);
    }
    let replica = table.small_or("replica", NOWHERE)?;
    if replica.iter().all(|&replica| replica == NOWHERE) {
        return Ok(None);
    }
    let known = |replica: u32| Some(replica).filter(|&replica| replica != NOWHERE);
    if !table.has("prefill_replica") {
        return Ok(Some(replica.into_iter().map(|replica| (known(replica), None)).collect()));
    }
    let prefill = table.small_or("prefill_replica", NOWHERE)?;
    let [computed, begun, arrived] =
        ["prompt_computed_s", "transfer_start_s", "transfer_end_s"].map(|name| table.reals(name));
    let (computed, begun, arrived, bytes) = (computed?, begun?, arrived?, table.counts("transfer_bytes")?);
    let at = |seconds: Option<f64>| seconds.map_or(Time::MAX, Time::from_s);
    let hand_off = |i: usize| HandOff {
        replica: prefill[i] as u16,
        computed: at(computed[i]),
        begun: at(begun[i]),
        arrived: at(arrived[i]),
        bytes: bytes[i],
    };
    let route = |i: usize| (known(replica[i]), known(prefill[i]).map(|_| hand_off(i)));
    Ok(Some((0..replica.len()).map(route).collect()))
}

/// The index of the replica that made each step of a run; `None` if the table has no column for replicas.
pub fn read_step_replicas(folder: &Path, key: &Key) -> Result<Option<Vec<u32>>, ReportError> {
    let table = Frame::open_cell(&folder.join("steps.parquet"), key)?;
    if table.has("replica") { table.small("replica").map(Some) } else { Ok(None) }
}

/// How the fleet of a run grew and shrank; `None` for a run without an autoscaling rule.
pub fn read_scaling(folder: &Path, entry: &Entry) -> Result<Option<Scaled>, ReportError> {
    if !folder.join("lives.parquet").is_file() {
        return Ok(None);
    }
    Ok(read_scaled(folder, std::slice::from_ref(entry))?.pop().flatten())
}
