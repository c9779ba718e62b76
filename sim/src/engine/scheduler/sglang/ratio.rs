//! How much KV admission leaves for the outputs of running requests (`NewTokenRatioTracker`).

/// How much of their outputs running requests are expected to make (`NewTokenRatioTracker`).
pub(super) struct NewTokenRatio {
    /// The ratio of an idle server.
    pub start: f64,
    least: f64,
    decay: f64,
    /// The ratio now.
    pub current: f64,
}

impl NewTokenRatio {
    /// The ratio at the start of a server with this `--schedule-conservativeness`.
    pub fn new(conservativeness: f64) -> NewTokenRatio {
        let start = (0.7 * conservativeness).min(1.0);
        let least = (start * 0.14).min(1.0);
        NewTokenRatio { start, least, decay: (start - least) / 600.0, current: start }
    }

    /// A decode step that found room lowers the ratio.
    pub fn decay(&mut self) {
        self.current = (self.current - self.decay).max(self.least);
    }
}
