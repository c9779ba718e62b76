//! The types with which gateways of SMG (a router for LLM servers) share routing data. Their methods do nothing here,
//! because this program, which records SMG's decisions, has only one gateway.

pub mod adapters {
    pub mod tree_sync {
        use crate::policies::TreeKind;
        use kv_index::TenantId;

        #[derive(Debug)]
        pub struct TreeDelta {
            pub tree_kind: TreeKind,
            pub node_hash: u64,
            pub worker_url: String,
            pub epoch: u64,
        }

        #[derive(Debug)]
        pub enum RepairEntry {
            String { path: String, tenants: Vec<(TenantId, u64)> },
            Token { tokens: Vec<u32>, tenants: Vec<(TenantId, u64)> },
        }

        pub struct TreeRepairPage {
            pub session_id: u64,
            pub model_id: String,
            pub tree_kind: TreeKind,
            pub page_index: u32,
            pub entries: Vec<RepairEntry>,
        }

        #[derive(Debug)]
        pub struct TreeSyncAdapter;

        impl TreeSyncAdapter {
            pub fn on_local_insert(&self, _: &str, _: TreeDelta) {}
        }
    }
}
