//! The settings types that SMG's policies name, in the place of SMG's own module.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheIndexKind {
    #[default]
    Tree,
    Hash,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PowerOfTwoLoadMetric {
    #[default]
    ExpectedWait,
    Requests,
    LeastRequests,
}
