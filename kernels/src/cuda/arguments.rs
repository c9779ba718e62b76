//! The names of the CUDA kernels and the structs of their arguments.
//!
//! Each kernel takes one struct, and this file declares each struct once. [`source`] writes the same declaration for
//! the compiler of the `.cu` files. It adds assertions of the struct's size and of the struct that each kernel takes.
//! If host and device disagree, the kernels do not compile.

use std::fmt::Write;
use std::marker::PhantomData;

/// A type of the numbers in arrays that the CUDA kernels read or write.
pub trait Number {
    /// The name of the number type in `.cu` files.
    const NAME: &'static str;
}

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident = $c:literal),* $(,)?) => {
        $($(#[$doc])* #[derive(Clone, Copy, Debug)] pub enum $name {} impl Number for $name { const NAME: &'static str = $c; })*
    };
}

numbers! {
    /// A number in an array: bf16, the upper 16 bits of an f32.
    Bf16 = "bf16",
    /// A number in an array: a 32-bit float.
    Float = "float",
    /// A number in an array: a 64-bit float.
    Double = "double",
    /// A number in an array: a 32-bit unsigned integer.
    Word = "u32",
    /// An element of an array: 16 bytes, which hold numbers of any type.
    Sixteen = "Quad",
    /// f32 or bf16; the field `wide` or `form` of the same struct says which of the two.
    Any = "void",
}

/// The device address of an array of `T` that a kernel reads.
#[repr(transparent)]
pub struct In<T>(pub u64, PhantomData<T>);

/// The device address of an array of `T` that a kernel writes.
#[repr(transparent)]
pub struct Out<T>(pub u64, PhantomData<T>);

impl<T> In<T> {
    /// An input array at the device address `address`.
    pub fn at(address: u64) -> In<T> {
        In(address, PhantomData)
    }
}

impl<T> Out<T> {
    /// An output array at the device address `address`.
    pub fn at(address: u64) -> Out<T> {
        Out(address, PhantomData)
    }
}

/// A Rust type that can be a field of a kernel's arguments. `name` is the type's name in `.cu` files.
trait Field {
    fn name() -> String;
}

impl<T: Number> Field for In<T> {
    fn name() -> String {
        format!("const {}*", T::NAME)
    }
}

impl<T: Number> Field for Out<T> {
    fn name() -> String {
        format!("{}*", T::NAME)
    }
}

impl Field for u32 {
    fn name() -> String {
        "u32".into()
    }
}

impl Field for u64 {
    fn name() -> String {
        "u64".into()
    }
}

impl Field for f32 {
    fn name() -> String {
        "float".into()
    }
}

/// A struct with all arguments of a CUDA kernel.
pub trait Arguments {
    /// Appends the bytes of this struct to `words`, as 64-bit words.
    fn append(&self, words: &mut Vec<u64>);

    /// Returns the name of this struct in `.cu` files.
    fn name() -> &'static str;

    /// Returns the declaration of this struct for `.cu` files.
    fn declaration() -> String;
}

macro_rules! arguments {
    ($($name:ident { $($field:ident: $kind:ty),* $(,)? })*) => {
        $(
            #[repr(C, align(8))]
            pub(super) struct $name { $(pub(super) $field: $kind),* }

            // A struct of arguments must have no padding between fields. Then every byte has a defined value, and equal
            // arguments have equal words.
            const _: () = assert!(size_of::<$name>() == 0 $(+ size_of::<$kind>())*, "arguments with padding");

            impl Arguments for $name {
                fn append(&self, words: &mut Vec<u64>) {
                    const WORDS: usize = size_of::<$name>() / 8;
                    #[expect(unsafe_code, reason = "a struct is seen as the words that the driver copies")]
                    // SAFETY: the struct is aligned to 64-bit words and consists of whole words. All bytes are written,
                    // because the struct has no padding (asserted above).
                    let all = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast::<u64>(), WORDS) };
                    words.extend_from_slice(all);
                }

                fn name() -> &'static str {
                    stringify!($name)
                }

                fn declaration() -> String {
                    let name = stringify!($name);
                    let mut c = format!("struct alignas(8) {name} {{\n");
                    $(let _ = writeln!(c, "    {} {};", <$kind as Field>::name(), stringify!($field));)*
                    // The host's struct and the struct of the `.cu` files have the same fields in the same order, and
                    // the host's struct has no padding. If their sizes are equal, their layouts are equal too.
                    let _ = writeln!(c, "}};\nstatic_assert(sizeof({name}) == {}, \"host and device\");", size_of::<$name>());
                    c
                }
            }
        )*

        fn declarations() -> String {
            [$($name::declaration()),*].concat()
        }
    };
}

arguments! {
    EmbedArgs { table: In<Bf16>, tokens: In<Word>, out: Out<Float>, width: u32, table_stride: u32, out_stride: u32, _even: u32 }
    AddNormArgs {
        x: Out<Float>, delta: In<Bf16>, gains: In<Float>, out: Out<Bf16>,
        width: u32, x_stride: u32, delta_stride: u32, out_stride: u32, eps: f32, _even: u32,
    }
    NormHeadsArgs {
        qkv: Out<Bf16>, query_gains: In<Float>, key_gains: In<Float>,
        stride: u32, heads: u32, kv_heads: u32, head_dim: u32, eps: f32, _even: u32,
    }
    SwigluArgs { gate_up: In<Bf16>, out: Out<Bf16>, width: u32, in_stride: u32, out_stride: u32, _even: u32 }
    GatherArgs { input: In<Sixteen>, rows: In<Word>, out: Out<Sixteen>, quads: u32, _even: u32 }
    UnpackArgs { input: In<Any>, out: Out<Float>, width: u32, stride: u32, wide: u32, _even: u32 }
    PackArgs { input: In<Float>, out: Out<Any>, width: u32, stride: u32, wide: u32, _even: u32 }
    RandomWeightsArgs { out: Out<Bf16>, base: u64, scale: f32, rows: u32, width: u32, stride: u32 }
    RopeStoreArgs {
        qkv: Out<Bf16>, keys: Out<Bf16>, values: Out<Bf16>, slots: In<Word>, positions: In<Word>, frequencies: In<Float>,
        stride: u32, heads: u32, kv_heads: u32, head_dim: u32, dim: u32, _even: u32,
    }
    MoveKvArgs { pools: Out<Bf16>, pairs: In<Word>, pool_numbers: u64, moves: u32, kv_heads: u32, dim: u32, _even: u32 }
    SoftmaxArgs { logits: In<Float>, out: Out<Float>, width: u32, in_stride: u32, out_stride: u32, temperature: f32 }
    TopKArgs { logits: In<Float>, tokens: Out<Word>, probabilities: Out<Float>, width: u32, stride: u32, k: u32, _even: u32 }
    RejectArgs {
        target: In<Float>, draft: In<Float>, chains: In<Word>, tokens: In<Word>, units: In<Double>, out: Out<Word>,
        width: u32, target_stride: u32, draft_stride: u32, _even: u32,
    }
    DivergenceArgs {
        target: In<Float>, draft: In<Float>, pairs: In<Word>, out: Out<Double>,
        width: u32, target_stride: u32, draft_stride: u32, _even: u32,
    }
    FewArgs {
        x: In<Bf16>, weights: In<Bf16>, out: Out<Any>,
        rows: u32, inputs: u32, outputs: u32, x_stride: u32, weight_stride: u32, out_stride: u32, form: u32, _even: u32,
    }
    QkvArgs {
        few: FewArgs, keys: Out<Bf16>, values: Out<Bf16>, slots: In<Word>, positions: In<Word>, frequencies: In<Float>,
        heads: u32, kv_heads: u32, head_dim: u32, _even: u32,
    }
    AttendArgs {
        qkv: In<Bf16>, keys: In<Bf16>, values: In<Bf16>, out: Out<Bf16>,
        tiles: In<Word>, prefixes: In<Word>, bits_at: In<Word>, bits: In<Word>, words: In<Word>,
        parts: Out<Float>, done: Out<Word>,
        qkv_stride: u32, out_stride: u32, kv_heads: u32, group: u32, head_dim: u32, stretch: u32, scale: f32, _even: u32,
    }
}

impl Field for FewArgs {
    fn name() -> String {
        "FewArgs".into()
    }
}

/// The index in [`KERNELS`] of a kernel that takes arguments of type `A`.
pub(super) struct Kernel<A> {
    pub(super) index: usize,
    arguments: PhantomData<A>,
}

macro_rules! kernels {
    ($($id:ident = $name:literal: $arguments:ty),* $(,)?) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "only the numbers of the names are used")]
        enum Index { $($id),* }

        $(pub(super) const $id: Kernel<$arguments> = Kernel { index: Index::$id as usize, arguments: PhantomData };)*

        /// The names of the CUDA kernels in the `.cu` files. A kernel's index is the place of its name in this list.
        pub const KERNELS: &[&str] = &[$($name),*];

        /// Returns text for the compiler of the `.cu` files. The text asserts that each kernel takes the struct that
        /// this file declares for that kernel.
        fn signatures() -> String {
            let check = |name: &str, arguments: &str| {
                format!("static_assert(Same<decltype({name}), void({arguments})>::value, \"{name} takes {arguments}\");\n")
            };
            [$(check($name, <$arguments as Arguments>::name())),*].concat()
        }

        /// Returns the name of each kernel's struct of arguments, in the order of [`KERNELS`].
        pub fn argument_names() -> Vec<&'static str> {
            vec![$(<$arguments as Arguments>::name()),*]
        }
    };
}

kernels! {
    EMBED = "embed": EmbedArgs,
    ADD_NORM = "add_norm": AddNormArgs,
    NORM_HEADS = "norm_heads": NormHeadsArgs,
    SWIGLU = "swiglu": SwigluArgs,
    GATHER = "gather": GatherArgs,
    SCATTER = "scatter": GatherArgs,
    UNPACK = "unpack": UnpackArgs,
    PACK = "pack": PackArgs,
    RANDOM_WEIGHTS = "random_weights": RandomWeightsArgs,
    ROPE_STORE = "rope_store": RopeStoreArgs,
    MOVE_KV = "move_kv": MoveKvArgs,
    SOFTMAX = "softmax": SoftmaxArgs,
    TOP_K = "top_k": TopKArgs,
    REJECT = "reject": RejectArgs,
    DIVERGENCE = "divergence": DivergenceArgs,
    MATMUL_FEW = "matmul_few": FewArgs,
    GATED_FEW = "gated_few": FewArgs,
    QKV_FEW = "qkv_few": QkvArgs,
    ATTEND_SPLIT_64 = "attend_split_64": AttendArgs,
    ATTEND_SPLIT_128 = "attend_split_128": AttendArgs,
    ATTEND_TILE_64 = "attend_tile_64": AttendArgs,
    ATTEND_TILE_128 = "attend_tile_128": AttendArgs,
}

/// Returns the whole text of the kernels to compile. `platform` is inserted before the kernels. For a GPU `platform` is
/// empty; in tests it has the definitions that emulate a GPU.
pub fn source(platform: &str) -> String {
    let mut text = String::new();
    let mut add = |name: &str, part: &str| {
        let _ = writeln!(text, "#line 1 \"{name}\"\n{part}");
    };
    add("types.cuh", include_str!("cu/types.cuh"));
    add("arguments.rs", &declarations());
    add("platform", platform);
    add("common.cuh", include_str!("cu/common.cuh"));
    add("rows.cu", include_str!("cu/rows.cu"));
    add("choose.cu", include_str!("cu/choose.cu"));
    add("matmul.cu", include_str!("cu/matmul.cu"));
    add("attention.cu", include_str!("cu/attention.cu"));
    add("arguments.rs", &signatures());
    text
}

/// The values of `FewArgs::form`, which say how a product of few rows is stored: 0 writes bf16, 1 writes f32, 2 adds to
/// f32.
pub(super) mod form {
    pub(in super::super) const NARROW: u32 = 0;
    pub(in super::super) const WIDE: u32 = 1;
    pub(in super::super) const ADD: u32 = 2;
}

/// Bytes of dynamic shared memory of the matrix products of few rows. Each of the 8 warps has a ring buffer with 8
/// places (`FEW_RING`), and each place has two times 16 bytes of weights for each lane. After the rings come the f32
/// sums of each warp, 8 rows × 16 outputs.
pub(super) const FEW_MEMORY: u32 = 8 * 8 * 2 * 32 * 16 + 8 * 8 * 16 * 4;

/// Bytes of dynamic shared memory of the split attention kernels. Each of the four warps has two places (`STAGES`), and
/// each place holds a KV block: 16 keys and 16 values in bf16, with rows as far apart as in [`tile_memory`].
pub(super) fn split_memory(dim: usize) -> u32 {
    (4 * 2 * 16 * ((dim + 32) + (dim + 8)) * 2) as u32
}

/// Bytes of dynamic shared memory of the tiled attention kernels. The memory holds two chunks, each with the keys and
/// values of 64 tokens in bf16. Two rows of keys are `KEY_STRIDE` numbers apart, two rows of values `VALUE_STRIDE`
/// (`attention.cu`).
pub(super) fn tile_memory(dim: usize) -> u32 {
    (2 * 64 * ((dim + 32) + (dim + 8)) * 2) as u32
}
