//! Compares the CUDA device with the CPU device. The tests `gpu_device::…` use a GPU, and are skipped with a message if
//! there is no GPU. The tests `emulated::…` use an emulated GPU, at small sizes.
//!
//! The CPU computes in f32; the GPU stores activations and KV as bf16. Results therefore differ by roundings, each up
//! to 2⁻⁹ of a number. Every check states the difference that it allows.

#[path = "../emulate/mod.rs"]
mod emulate;
mod operations;
mod sampling;
mod support;
mod whole;

use foretoken_kernels::cuda::{Cuda, CudaError, Tuning};
use foretoken_tests::Part;

/// Opens the GPU. If there is no GPU, prints a skip message and returns `None`. Panics if there is a GPU that cannot be
/// used.
fn gpu() -> Option<Cuda> {
    match Cuda::new(0) {
        Ok(cuda) => Some(cuda),
        Err(why @ (CudaError::Missing("the CUDA driver (libcuda)") | CudaError::NoDevice { .. })) => {
            foretoken_tests::skip(Part::Gpu, why);
            None
        }
        Err(why) => panic!("{why}"),
    }
}

macro_rules! checks {
    ($($module:ident::$check:ident),* $(,)?) => {
        mod gpu_device {
            $(
                #[test]
                fn $check() {
                    if let Some(mut cuda) = super::gpu() {
                        super::$module::$check(&mut cuda, super::support::Scale::Gpu);
                    }
                }
            )*
        }

        mod emulated {
            $(
                #[test]
                fn $check() {
                    super::support::repeat();
                    if let Some(mut cuda) = super::emulate::device(super::Tuning::default()) {
                        super::$module::$check(&mut cuda, super::support::Scale::Emulated);
                    }
                }
            )*
        }
    };
}

checks! {
    operations::rows_are_normed_gated_and_gathered,
    operations::products_of_all_sizes,
    operations::random_weights_are_the_hosts,
    operations::stored_weights_of_all_types,
    operations::attention_sees_what_it_should,
    operations::heads_are_normed,
    sampling::probabilities_and_the_likeliest,
    sampling::greedy_acceptance_is_the_hosts,
    sampling::rejection_is_the_hosts,
    sampling::draws_entropies_and_divergences_are_the_hosts,
    sampling::rejection_keeps_the_targets_distribution,
    whole::logits_are_the_cpus,
    whole::ragged_and_paged_batches_equal_single_requests,
    whole::a_verify_pass_equals_single_steps,
    whole::moved_paths_become_context,
    whole::greedy_speculation_emits_the_autoregressive_tokens,
    whole::graphs_change_nothing,
    whole::a_model_too_large_is_refused,
}
