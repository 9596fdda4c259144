//! A training process whose tensors are allocated as PyTorch's allocator is documented to, in each
//! of its three configurations: nearly all of its memory can leave, and comes back with every byte.

use gpushare_tests::MIB;
use gpushare_tests::movable::Scene;

const SPEC: &str = "mem=2GiB,ctx=8MiB,driver=13050";
const LAYERS: u64 = 4;
/// A layer's weights of 4 bytes: attention, the two of the perceptron, biases and norms.
const WEIGHTS: [u64; 10] = [
    512 * 1536 * 4,
    512 * 512 * 4,
    512 * 2048 * 4,
    2048 * 512 * 4,
    1536 * 4,
    512 * 4,
    2048 * 4,
    512 * 4,
    512 * 4,
    512 * 4,
];
/// What a layer keeps for the way back, for 8 sequences of 128 tokens.
const KEPT: [u64; 6] = [
    8 * 128 * 512 * 4,
    8 * 128 * 1536 * 4,
    8 * 8 * 128 * 128 * 4,
    8 * 128 * 512 * 4,
    8 * 128 * 2048 * 4,
    8 * 128 * 8,
];

/// The replay: tensors by numbers.
struct Training {
    scene: Scene,
    next: u64,
    free: Vec<u64>,
}

impl Training {
    fn take(&mut self, bytes: u64) -> u64 {
        let tensor = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        self.scene.does(&[&format!("take {tensor} {bytes}")]);
        tensor
    }

    fn give(&mut self, tensor: u64) {
        self.scene.does(&[&format!("give {tensor}")]);
        self.free.push(tensor);
    }

    fn weights(&mut self) -> Vec<u64> {
        let all = (0..LAYERS).flat_map(|_| WEIGHTS);
        all.map(|bytes| self.take(bytes)).collect()
    }

    /// One step: forwards, backwards with gradients, and what the optimiser takes meanwhile.
    fn step(&mut self) {
        let mut kept = Vec::new();
        for _ in 0..LAYERS {
            for bytes in KEPT {
                let meanwhile = self.take(bytes * 2);
                kept.push(self.take(bytes));
                self.give(meanwhile);
            }
        }
        let mut gradients = Vec::new();
        while let Some(last) = kept.pop() {
            let meanwhile = self.take(KEPT[kept.len() % KEPT.len()]);
            if kept.len() % KEPT.len() == 0 {
                for bytes in WEIGHTS {
                    gradients.push(self.take(bytes));
                }
            }
            self.give(last);
            self.give(meanwhile);
        }
        for gradient in gradients {
            self.give(gradient);
        }
    }
}

/// The residue of such a client is at most a twentieth of its memory.
#[track_caller]
fn little_stays(how: u8) {
    let scene = Scene::of("torch", SPEC, &format!("init {how}"), &[]);
    let mut training = Training {
        scene,
        next: 0,
        free: Vec::new(),
    };
    let weights = training.weights();
    for tensor in &weights {
        training.scene.does(&[&format!("fill {tensor} {tensor}")]);
    }
    // cuBLAS's workspace is the allocator's; cuDNN and the runtime allocate beside it.
    let _ = training.take(8_519_680);
    training.step();
    // Two states of the optimiser for each weight come with its first step.
    let _ = [training.weights(), training.weights()];
    training.step();
    training.scene.does(&["empty"]);
    training.step();
    let mut scene = training.scene;
    for bytes in [512, 4096, 65_536, 1_048_576, 33_554_432_u64] {
        scene.does(&[&format!("plain {bytes}")]);
    }
    scene.dealer.come_back();
    let charged = scene.charged();
    let told = scene.tells(|told| told.movable + told.residue.total() == charged);
    let stays = told.residue.total();
    eprintln!("residue {stays} of {} MiB", charged / MIB);
    assert!(charged >= 200 * MIB, "{charged}");
    assert!(stays * 20 <= charged, "{told:?}");
    scene.provided(told.movable);
    for _ in 0..2 {
        scene.leaves();
        scene.returns();
        for tensor in &weights {
            scene
                .guest
                .answers(&format!("check {tensor} {tensor}"), "0");
        }
    }
    scene.guest.finish().silently();
}

#[test]
fn little_stays_of_pytorchs_segments() {
    little_stays(0);
}

#[test]
fn little_stays_of_pytorchs_expandable_segments() {
    little_stays(1);
}

#[test]
fn little_stays_of_pytorch_on_the_drivers_pool() {
    little_stays(2);
}
