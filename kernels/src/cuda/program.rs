//! The commands of a pass, encoded as 64-bit words before the commands run. Passes whose words are equal are replayed
//! as the same CUDA graph.

use super::arguments::{Arguments, Kernel};

/// The matrix product `out = x · weightsᵀ` of row-major matrices, with bf16 inputs and f32 sums. Addresses are of
/// device memory. Strides are counted in elements, not in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matmul {
    /// Device address of the rows to multiply, bf16.
    pub x: u64,
    /// Device address of the weights, outputs × inputs, bf16.
    pub weights: u64,
    /// Device address of the results, f32 or bf16.
    pub out: u64,
    /// The sizes of the product. The algorithm of cuBLASLt that computes the product depends on them.
    pub shape: MatmulShape,
}

/// The sizes of a matrix product `out = x · weightsᵀ`. Distances between rows are counted in elements, not in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatmulShape {
    /// Number of rows of `x` and of `out`.
    pub rows: u32,
    /// Number of inputs: the width of a row of `x`.
    pub inputs: u32,
    /// Number of outputs: the width of a row of `out`.
    pub outputs: u32,
    /// Distance between the beginnings of two successive rows of `x`, in elements.
    pub x_stride: u32,
    /// Distance between the beginnings of the weights of two successive outputs, in elements.
    pub weight_stride: u32,
    /// Distance between the beginnings of two successive rows of `out`, in elements.
    pub out_stride: u32,
    /// True if the results are f32, false if they are bf16.
    pub wide: bool,
}

/// One command for the device: a launch of a kernel, or a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    Launch(Launch<'a>),
    /// A large matrix product, which cuBLASLt computes.
    Matmul(Matmul),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch<'a> {
    /// Index of the kernel in [`super::arguments::KERNELS`].
    pub kernel: usize,
    /// Number of thread blocks in the grid's dimensions x, y and z.
    pub grid: [u32; 3],
    /// Number of threads in a thread block, in x and y.
    pub block: [u32; 2],
    /// Bytes of dynamic shared memory for each thread block.
    pub shared: u32,
    /// The struct of arguments that the kernel takes, as 64-bit words.
    pub arguments: &'a [u64],
}

/// The commands of a pass or an operation, in the order in which they run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    words: Vec<u64>,
}

const MATMUL: u64 = u64::MAX;

fn both(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

impl Program {
    /// Removes all commands of the program; the list's memory is reused.
    pub(super) fn clear(&mut self) {
        self.words.clear();
    }

    /// Adds a launch of `kernel` to the program. Does nothing if the grid has no thread blocks.
    pub(super) fn launch<A: Arguments>(
        &mut self,
        kernel: &Kernel<A>,
        grid: [usize; 3],
        block: [usize; 2],
        shared: u32,
        arguments: &A,
    ) {
        if grid.contains(&0) {
            return;
        }
        let [x, y, z] = grid.map(|n| n as u32);
        let begins = self.words.len();
        self.words.extend([0, both(x, y), both(z, shared), both(block[0] as u32, block[1] as u32)]);
        arguments.append(&mut self.words);
        self.words[begins] = both(kernel.index as u32, (self.words.len() - begins) as u32);
    }

    /// Adds a large matrix product, which cuBLASLt computes, to the program.
    pub(super) fn matmul(&mut self, m: &Matmul) {
        let s = &m.shape;
        let sizes = [both(s.rows, s.inputs), both(s.outputs, s.x_stride), both(s.weight_stride, s.out_stride)];
        self.words.extend([MATMUL, m.x, m.weights, m.out]);
        self.words.extend(sizes);
        self.words.push(s.wide.into());
    }

    /// Decodes the commands of the program from its 64-bit words, in order.
    pub fn commands(&self) -> impl Iterator<Item = Command<'_>> {
        let mut rest = self.words.as_slice();
        std::iter::from_fn(move || {
            let (&first, _) = rest.split_first()?;
            if first == MATMUL {
                let (words, after) = rest.split_at(8);
                rest = after;
                let ([rows, inputs], [outputs, x_stride]) = (halves(words[4]), halves(words[5]));
                let [weight_stride, out_stride] = halves(words[6]);
                let shape =
                    MatmulShape { rows, inputs, outputs, x_stride, weight_stride, out_stride, wide: words[7] == 1 };
                return Some(Command::Matmul(Matmul { x: words[1], weights: words[2], out: words[3], shape }));
            }
            let [kernel, length] = halves(first);
            let (words, after) = rest.split_at(length as usize);
            rest = after;
            let ([x, y], [z, shared]) = (halves(words[1]), halves(words[2]));
            let (grid, block) = ([x, y, z], halves(words[3]));
            Some(Command::Launch(Launch { kernel: kernel as usize, grid, block, shared, arguments: &words[4..] }))
        })
    }

    /// Returns a hash of the program's commands. Equal programs have equal hashes.
    pub(super) fn hash(&self) -> u64 {
        self.words.iter().fold(self.words.len() as u64, |h, &word| foretoken_sim::luck::mix(h ^ word))
    }
}

#[cfg(test)]
mod tests {
    use super::super::arguments::{GATHER, GatherArgs, In, Out};
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut program = Program::default();
        let arguments = GatherArgs { input: In::at(1 << 40), rows: In::at(2), out: Out::at(3), quads: 4, _even: 0 };
        let shape = MatmulShape {
            rows: 1,
            inputs: 2,
            outputs: 3,
            x_stride: 4,
            weight_stride: 5,
            out_stride: u32::MAX,
            wide: true,
        };
        let product = Matmul { x: 7, weights: 8, out: 9, shape };
        program.launch(&GATHER, [1, 2, 3], [64, 4], 5, &arguments);
        program.launch(&GATHER, [0, 2, 3], [64, 4], 5, &arguments);
        program.matmul(&product);
        let launch =
            Launch { kernel: GATHER.index, grid: [1, 2, 3], block: [64, 4], shared: 5, arguments: &[1 << 40, 2, 3, 4] };
        let all: Vec<Command<'_>> = program.commands().collect();
        assert_eq!(all, [Command::Launch(launch), Command::Matmul(product)]);
        let mut other = program.clone();
        assert_eq!(other.hash(), program.hash());
        other.matmul(&product);
        assert_ne!(other.hash(), program.hash());
    }
}
