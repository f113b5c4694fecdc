//! The host's device: kernels with faults are reported, and right ones give what they must.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use tapdex_gpu::device::{Arg, Device, DeviceError, Launch, Stream};
use tapdex_gpu::host::HostDevice;
use tapdex_gpu::memory::{Memory, Pinned};

const SEEDS: u64 = 20;

struct Bench {
    host: Arc<HostDevice>,
    device: Arc<dyn Device>,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let host = HostDevice::new(seed).unwrap();
        Self { device: host.clone(), host }
    }

    fn words(&self, words: &[u32]) -> Memory {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let memory = Memory::new(&self.device, bytes.len()).unwrap();
        self.device.copy_in(Stream::Compute, &bytes, memory.address()).unwrap();
        memory
    }

    fn zeros(&self, bytes: usize) -> Memory {
        let memory = Memory::new(&self.device, bytes).unwrap();
        self.device.fill(Stream::Compute, memory.address(), 0, bytes).unwrap();
        memory
    }

    fn bytes(&self, memory: &Memory) -> Vec<u8> {
        let pinned = Pinned::new(&self.device, memory.len()).unwrap();
        let (from, to) = (memory.address(), pinned.address());
        self.device.copy_out(Stream::Compute, from, to, memory.len()).unwrap();
        self.wait(Stream::Compute).unwrap();
        pinned.to_vec()
    }

    /// Waits for what a stream was asked for.
    fn wait(&self, stream: Stream) -> Result<(), DeviceError> {
        let event = self.device.record(stream)?;
        self.device.wait_for(event)
    }

    fn read(&self, memory: &Memory) -> Vec<u32> {
        let bytes = self.bytes(memory);
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
    }

    fn read_wide(&self, memory: &Memory) -> Vec<u64> {
        let bytes = self.bytes(memory);
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    }

    /// Runs a kernel, and waits for it.
    fn launch(
        &self,
        kernel: &'static str,
        blocks: u32,
        threads: u32,
        shared: u32,
        args: &[Arg],
    ) -> Result<(), DeviceError> {
        let launch = Launch { stem: "faults", kernel, blocks, threads, shared };
        self.device.launch(Stream::Compute, launch, args)?;
        self.wait(Stream::Compute)
    }

    /// What a kernel that writes to `out` is reported for.
    fn fault(&self, kernel: &'static str, threads: u32, more: &[u32]) -> String {
        let out = self.zeros(4096);
        let mut args = vec![Arg::Wide(out.address())];
        args.extend(more.iter().map(|&word| Arg::Narrow(word)));
        reason(self.launch(kernel, 2, threads, 0, &args))
    }
}

fn reason(result: Result<(), DeviceError>) -> String {
    match result {
        Err(DeviceError::Lost { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

fn holds(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

fn numbers(count: u32, below: u32) -> Vec<u32> {
    let mut state = 1u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % below
    };
    (0..count).map(next).collect()
}

#[test]
fn sums_are_right_in_every_order() {
    let words = numbers(1000, 100);
    let expected: Vec<u32> = words
        .chunks(256)
        .flat_map(|block| (0..block.len()).map(|end| block[..end].iter().sum::<u32>()))
        .collect();
    for seed in 0..SEEDS {
        let bench = Bench::new(seed);
        let (from, to) = (bench.words(&words), bench.zeros(4000));
        let args = [from.address().into(), to.address().into(), 1000u32.into()];
        bench.launch("sums", 4, 256, 0, &args).unwrap();
        assert_eq!(bench.read(&to), expected, "seed {seed}");
    }
}

#[test]
fn counts_are_right_in_every_order() {
    let words = numbers(5000, 16);
    let mut expected = vec![0u32; 16];
    words.iter().for_each(|&word| expected[usize::try_from(word).unwrap()] += 1);
    for seed in 0..SEEDS {
        let bench = Bench::new(seed);
        let (from, to) = (bench.words(&words), bench.zeros(64));
        let args = [from.address().into(), to.address().into(), 5000u32.into()];
        bench.launch("counts", 3, 96, 64, &args).unwrap();
        assert_eq!(bench.read(&to), expected, "seed {seed}");
    }
}

/// What `collectives` gives to a thread, worked out from all the values of its block.
fn collectives(values: &[u32], at: usize) -> [u64; 16] {
    let lane = at % 32;
    let start = at - lane;
    let warp = &values[start..start + 32];
    let mine = values[at];
    let set = |lanes: std::ops::Range<usize>, test: &dyn Fn(u32) -> bool| {
        lanes.filter(|&lane| test(warp[lane])).fold(0u64, |set, lane| set | 1 << lane)
    };
    let wide = |from: usize| u64::from(warp[from]) << 40 | u64::try_from(from).unwrap();
    let threes = values.iter().filter(|&&value| value == 3).count();
    let all = if at / 32 % 2 == 1 { 0xFFFF_FFFF + 1 } else { 0 };
    [
        warp[usize::try_from(mine).unwrap() % 32].into(),
        warp[if lane >= 3 { lane - 3 } else { lane }].into(),
        warp[if lane + 5 < 32 { lane + 5 } else { lane }].into(),
        warp[lane ^ 9].into(),
        set(0..32, &|value| value & 1 == 1),
        u64::from(warp.contains(&7)),
        u64::from(warp.iter().all(|&value| value < 7)),
        set(0..32, &|value| value == mine),
        wide(lane.saturating_sub(1)),
        warp[if lane % 8 >= 1 { lane - 1 } else { lane }].into(),
        warp[lane ^ 4].into(),
        if lane < 16 {
            set(0..16, &|value| value & 2 == 2)
        } else {
            set(16..32, &|value| value == mine)
        },
        u64::try_from(threes).unwrap(),
        u64::from(threes != 0),
        u64::from(values.iter().all(|&value| value < 20)),
        all,
    ]
}

#[test]
fn collectives_are_exact() {
    let words = [numbers(128, 20), numbers(128, 40), numbers(128, 7)].concat();
    let expected: Vec<u64> = words
        .chunks(128)
        .flat_map(|block| (0..128).flat_map(|at| collectives(block, at)))
        .collect();
    for seed in 0..SEEDS {
        let bench = Bench::new(seed);
        let (from, to) = (bench.words(&words), bench.zeros(384 * 16 * 8));
        let args = [from.address().into(), to.address().into()];
        bench.launch("collectives", 3, 128, 0, &args).unwrap();
        assert_eq!(bench.read_wide(&to), expected, "seed {seed}");
    }
}

#[test]
fn intrinsics_are_exact() {
    let (a, b) = (0x8123_4560_u32, 0x00AB_CDEF_u32);
    let wide = u64::from(b) << 32 | u64::from(a);
    let bench = Bench::new(1);
    let (from, to) = (bench.words(&[a, b]), bench.zeros(18 * 8));
    bench.launch("bits", 1, 32, 0, &[from.address().into(), to.address().into()]).unwrap();
    let expected: [u64; 18] = [
        a.count_ones().into(),
        wide.count_ones().into(),
        a.leading_zeros().into(),
        wide.leading_zeros().into(),
        32,
        (a.trailing_zeros() + 1).into(),
        (wide.trailing_zeros() + 1).into(),
        0,
        a.reverse_bits().into(),
        // Bytes 3, 7, 0 and 5 of the eight.
        0x8100_60CD,
        // The sign of byte 1, byte 4, the sign of byte 0, byte 0.
        0x00EF_0060,
        u64::from(b << 5 | a >> 27),
        u64::from(b << 27 | a >> 5),
        a.into(),
        b.into(),
        u64::from(a.wrapping_add(b)),
        (u64::from(a) * u64::from(b)) >> 32,
        u64::from(a.wrapping_add(b)) + 16 + 16 + 4,
    ];
    assert_eq!(bench.read_wide(&to), expected);
}

#[test]
fn a_missing_barrier_shows_with_some_seed() {
    let words = numbers(512, 1000);
    let expected: Vec<u32> = words.chunks(256).map(|block| block.iter().sum()).collect();
    let run = |kernel, seed| {
        let bench = Bench::new(seed);
        let (from, to) = (bench.words(&words), bench.zeros(8));
        bench.launch(kernel, 2, 256, 0, &[from.address().into(), to.address().into()]).unwrap();
        bench.read(&to) == expected
    };
    assert!((0..SEEDS).all(|seed| run("reduce_right", seed)));
    assert!((0..SEEDS).any(|seed| !run("reduce_without_barrier", seed)));
}

#[test]
fn lanes_that_do_not_wait_for_each_other_show_with_some_seed() {
    let expected: Vec<u32> = (0..32).rev().collect();
    let wrong = |seed| {
        let bench = Bench::new(seed);
        let to = bench.zeros(128);
        bench.launch("warp_without_sync", 1, 32, 0, &[to.address().into()]).unwrap();
        bench.read(&to) != expected
    };
    assert!((0..SEEDS).any(wrong));
}

#[test]
fn counts_without_atomic_operations_show_with_most_seeds() {
    let wrong = |&seed: &u64| {
        let bench = Bench::new(seed);
        let to = bench.zeros(8);
        bench
            .launch("count_without_atomic", 1, 64, 0, &[to.address().into(), 20u32.into()])
            .unwrap();
        bench.read(&to) != [640, 640]
    };
    let found = (0..SEEDS).filter(wrong).count();
    assert!(found > 10, "{found} of {SEEDS}");
}

#[test]
fn threads_may_wait_for_each_other_but_not_for_other_blocks() {
    for seed in 0..SEEDS {
        let bench = Bench::new(seed);
        let to = bench.zeros(8);
        bench.launch("wait_for_others", 1, 96, 0, &[to.address().into()]).unwrap();
        assert_eq!(bench.read(&to), [95, 95]);
    }
    let said = Bench::new(1).fault("wait_for_block", 32, &[]);
    holds(&said, &["thread 0: its block comes to no end"]);
}

#[test]
fn memory_that_was_not_written_is_garbage() {
    let bench = Bench::new(3);
    let fresh = Memory::new(&bench.device, 64).unwrap();
    assert!(bench.bytes(&fresh).iter().all(|&byte| byte != 0));
    let to = bench.zeros(3 * 64 * 8);
    bench.launch("read_unwritten", 3, 64, 32, &[to.address().into()]).unwrap();
    assert!(bench.read(&to).iter().all(|&word| word != 0));
    assert!(Pinned::new(&bench.device, 100).unwrap().iter().all(|&byte| byte == 0));
}

#[test]
fn blocks_run_in_an_order_of_the_seed() {
    let order = |seed| {
        let bench = Bench::new(seed);
        let (next, to) = (bench.zeros(4), bench.zeros(40));
        bench
            .launch("block_order", 10, 32, 0, &[next.address().into(), to.address().into()])
            .unwrap();
        bench.read(&to)
    };
    let orders: Vec<_> = (0..SEEDS).map(order).collect();
    for order in &orders {
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..10), "each block runs once");
    }
    let ascending: Vec<u32> = (0..10).collect();
    assert!(orders.contains(&ascending));
    assert!(orders.iter().any(|order| order.is_sorted_by(|a, b| a > b)));
    assert!(orders.iter().any(|order| !order.is_sorted() && order[0] < order[9]));
    assert_eq!(order(5), orders[5], "a seed gives the same order again");
}

#[test]
fn a_barrier_that_some_miss_is_reported() {
    for seed in 0..SEEDS {
        let said = Bench::new(seed).fault("barrier_missed", 96, &[]);
        holds(&said, &["kernel barrier_missed", "a barrier that not all threads come to"]);
        holds(&said, &["thread 0 waits at __syncthreads (faults.cu:", "thread 48 at"]);
    }
}

#[test]
fn a_collective_that_some_miss_is_reported() {
    for seed in 0..SEEDS {
        let said = Bench::new(seed).fault("barrier_in_warp", 64, &[]);
        holds(
            &said,
            &["kernel barrier_in_warp, block ", "lanes 0-7 wait at __syncthreads (faults"],
        );
        holds(&said, &["lanes 8-31 wait at __ballot_sync with mask ffffffff (faults.cu:"]);

        let said = Bench::new(seed).fault("lanes_returned", 64, &[50]);
        holds(&said, &["warp 1; lanes 0-17 wait at __shfl_sync", "lanes 18-31 have returned"]);

        let said = Bench::new(seed).fault("lanes_elsewhere", 32, &[]);
        holds(&said, &["lanes 0,2,4,", "wait at __any_sync", "lanes 1,3,5,", "__ballot_sync"]);

        let said = Bench::new(seed).fault("lane_outside", 32, &[]);
        holds(&said, &["a lane outside of the mask it names (faults.cu:"]);
    }
}

#[test]
fn lanes_that_all_come_are_not_reported() {
    let bench = Bench::new(1);
    let to = bench.zeros(256);
    bench.launch("lanes_returned", 1, 64, 0, &[to.address().into(), 32u32.into()]).unwrap();
    bench.launch("lanes_returned", 1, 64, 0, &[to.address().into(), 64u32.into()]).unwrap();
    assert_eq!(bench.read(&to), [[0; 32], [32; 32]].concat());
}

#[test]
fn threads_that_have_returned_do_not_count_at_a_barrier() {
    for seed in 0..SEEDS {
        let bench = Bench::new(seed);
        let to = bench.zeros(400);
        let args = [to.address().into(), 100u32.into()];
        bench.launch("barrier_after_return", 1, 256, 0, &args).unwrap();
        assert!(bench.read(&to).into_iter().eq((0..100).rev()), "seed {seed}");
    }
}

#[test]
fn a_write_outside_of_an_allocation_is_reported() {
    let bench = Bench::new(1);
    let (_before, to, _behind) = (bench.zeros(400), bench.zeros(400), bench.zeros(400));
    bench.launch("write_behind", 1, 128, 0, &[to.address().into(), 99u32.into()]).unwrap();
    let args = [to.address().into(), 100u32.into()];
    let said = reason(bench.launch("write_behind", 1, 128, 0, &args));
    holds(&said, &["kernel write_behind, block 0 of 1, ", "thread 100: writes 4 bytes at "]);
    holds(&said, &["0 bytes behind an allocation of 400 that argument 0 points to (faults.cu:"]);
    // After that the device is lost.
    assert_eq!(reason(bench.launch("write_behind", 1, 128, 0, &args)), said);

    let bench = Bench::new(1);
    let to = bench.zeros(400);
    let args = [(to.address() - 4).into(), 99u32.into()];
    let said = reason(bench.launch("write_behind", 1, 128, 0, &args));
    holds(&said, &["4 bytes before an allocation of 400 (faults.cu:"]);
}

#[test]
fn a_write_outside_of_shared_memory_is_reported() {
    let bench = Bench::new(1);
    bench.launch("write_behind_shared", 1, 32, 100, &[99u32.into()]).unwrap();
    let said = reason(bench.launch("write_behind_shared", 1, 32, 100, &[100u32.into()]));
    holds(&said, &["thread 0: writes 1 bytes at", "0 bytes behind the 100 bytes of shared memory"]);
}

#[test]
fn a_read_outside_of_an_allocation_is_reported() {
    let read = |n: u32| {
        let bench = Bench::new(1);
        let (from, to) = (bench.zeros(400), bench.zeros(512));
        let args = [from.address().into(), to.address().into(), n.into()];
        bench.launch("read_behind", 1, 128, 0, &args)
    };
    read(99).unwrap();
    let said = reason(read(100));
    holds(&said, &["kernel read_behind, block 0 of 1, ", "thread 100: reads 4 bytes at "]);
    holds(&said, &["0 bytes behind an allocation of 400 that argument 0 points to (faults.cu:"]);
}

#[test]
fn freed_memory_is_not_the_kernels_any_more() {
    let bench = Bench::new(1);
    let address = bench.zeros(512).address();
    let said = reason(bench.launch("named_five", 1, 32, 0, &[address.into()]));
    holds(&said, &["writes 4 bytes at", "which is not its memory"]);
}

#[test]
fn what_cuda_does_not_define_is_reported() {
    let bench = Bench::new(1);
    let to = bench.zeros(4096);
    for (kernel, by) in [
        ("not_aligned", 8),
        ("atomic_not_aligned", 4),
        ("write_behind_array", 0),
        ("index_outside", 0),
        ("shift_far", 0),
        ("division", 3),
    ] {
        bench.launch(kernel, 1, 32, 0, &[to.address().into(), Arg::Narrow(by)]).unwrap();
    }
    let cases: [(&'static str, &[u32], &str); 10] = [
        ("write_behind_array", &[1 << 28], "writes 4 bytes at"),
        ("write_variable", &[], "writes 4 bytes at"),
        ("atomic_not_aligned", &[2], "an address that is not aligned (faults.cu:"),
        ("not_aligned", &[6], "an address that is not aligned (faults.cu:"),
        ("index_outside", &[63], ": an index outside of its array (faults.cu:"),
        ("shift_far", &[1], "thread 31: a shift by as many bits as there are, or more (faults"),
        ("division", &[0], "a division by 0 (faults.cu:"),
        ("atomic_behind", &[1024], "0 bytes behind an allocation of 4096"),
        ("stack_of_another", &[], "reads 4 bytes at"),
        ("trap", &[], "thread 40: __trap (faults.cu:"),
    ];
    for (kernel, more, part) in cases {
        let threads = if kernel == "trap" { 64 } else { 32 };
        holds(&Bench::new(1).fault(kernel, threads, more), &[kernel, part]);
    }
}

#[test]
fn a_launch_that_does_not_fit_the_kernel_is_refused() {
    let cases: [(&'static str, u32, u32, &[Arg], &str); 8] = [
        ("nothing", 32, 0, &[], "there is no such kernel"),
        ("few_threads", 96, 0, &[Arg::Wide(0)], "more threads than its __launch_bounds__"),
        ("named_five", 48, 0, &[Arg::Wide(0)], "a multiple of 32"),
        ("named_five", 1056, 0, &[Arg::Wide(0)], "a multiple of 32"),
        ("named_five", 0, 0, &[Arg::Wide(0)], "a multiple of 32"),
        ("named_five", 32, 0, &[], "another number of arguments"),
        ("named_five", 32, 0, &[Arg::Narrow(0)], "argument 0 has 8 bytes, not 4"),
        ("named_five", 32, 300_000, &[Arg::Wide(0)], "300000 bytes of shared memory"),
    ];
    for (kernel, threads, shared, args, part) in cases {
        let bench = Bench::new(1);
        holds(&reason(bench.launch(kernel, 1, threads, shared, args)), &[kernel, part]);
    }
    let bench = Bench::new(1);
    let to = bench.zeros(256);
    bench.launch("few_threads", 1, 64, 0, &[to.address().into()]).unwrap();
    assert!(bench.read(&to).into_iter().eq(0..64));
    bench.launch("named_six", 0, 64, 0, &[to.address().into()]).unwrap();
    assert!(bench.read(&to).into_iter().eq(0..64), "no blocks, no work");
    bench.launch("named_six", 1, 64, 0, &[to.address().into()]).unwrap();
    assert_eq!(bench.read(&to), [6; 64]);
}

#[test]
fn copies_outside_of_an_allocation_are_refused() {
    type Act = fn(&Bench, &Memory, &Pinned) -> Result<(), DeviceError>;
    let acts: [Act; 7] = [
        |bench, memory, _| bench.device.copy_in(Stream::In, &[0; 9], memory.address()),
        |bench, memory, _| bench.device.copy_in(Stream::In, &[0; 1], memory.address() - 1),
        |bench, _, pinned| bench.device.copy_in(Stream::In, &[0; 1], pinned.address()),
        |bench, memory, _| bench.device.fill(Stream::In, memory.address() + 4, 0, 5),
        |bench, memory, pinned| {
            bench.device.copy_out(Stream::Out, memory.address() + 8, pinned.address(), 1)
        },
        |bench, memory, pinned| {
            bench.device.copy_out(Stream::Out, memory.address(), pinned.address() + 1, 4)
        },
        |bench, memory, _| {
            bench.device.copy_out(Stream::Out, memory.address(), memory.address(), 4)
        },
    ];
    for act in acts {
        let bench = Bench::new(1);
        let (memory, pinned) = (bench.zeros(8), Pinned::new(&bench.device, 4).unwrap());
        holds(&reason(act(&bench, &memory, &pinned)), &["are not inside of one"]);
    }
}

#[test]
fn the_device_runs_out_of_memory_when_asked_to() {
    let bench = Bench::new(1);
    bench.host.fail_alloc_above(1000);
    let first = Memory::new(&bench.device, 600).unwrap();
    let refused = Memory::new(&bench.device, 401);
    assert!(matches!(refused, Err(DeviceError::OutOfMemory { bytes: 401 })));
    assert_eq!(bench.host.memory_used(), 600);
    drop(Memory::new(&bench.device, 400).unwrap());
    drop(first);
    assert_eq!(bench.host.memory_used(), 0);
    assert_eq!(Memory::new(&bench.device, 1000).unwrap().address() % 256, 0);
    let pinned = Pinned::new(&bench.device, 5000).unwrap();
    assert_eq!((pinned.address() % 64, bench.host.memory_pinned()), (0, 5000));
}

#[test]
fn the_device_is_lost_when_asked_to() {
    let bench = Bench::new(1);
    let to = bench.zeros(128);
    let go = || bench.launch("named_five", 1, 32, 0, &[to.address().into()]);
    go().unwrap();
    bench.host.lose_at(2);
    go().unwrap();
    assert_eq!(bench.read(&to), [5; 32]);
    let event = bench.device.record(Stream::Compute).unwrap();
    holds(&reason(go()), &["the test asked for this"]);
    holds(&reason(go()), &["the test asked for this"]);
    reason(bench.device.fill(Stream::In, to.address(), 0, 1));
    reason(bench.device.wait_for(event));
    reason(Memory::new(&bench.device, 1).map(|_| ()));
    reason(Pinned::new(&bench.device, 1).map(|_| ()));
    drop(to);
    assert_eq!((bench.host.memory_used(), bench.host.launches()), (0, 3));
}

#[test]
fn events_are_known_until_they_are_dropped() {
    let bench = Bench::new(1);
    let (first, second) = (bench.device.record(Stream::In), bench.device.record(Stream::Out));
    let (first, second) = (first.unwrap(), second.unwrap());
    bench.device.wait_in(Stream::Out, first).unwrap();
    let third = bench.device.record(Stream::Out).unwrap();
    bench.device.wait_for(third).unwrap();
    assert!(bench.device.elapsed_ms(first, second).unwrap() >= 0.0);
    bench.device.drop_event(first);
    holds(&reason(bench.device.wait_for(first)), &["there is no event 1"]);
}

#[test]
fn an_event_that_was_not_reached_has_no_time() {
    let early = |&seed: &u64| {
        let bench = Bench::new(seed);
        let event = bench.device.record(Stream::In).unwrap();
        match bench.device.elapsed_ms(event, event) {
            Ok(_) => true,
            Err(error) => {
                holds(&reason(Err(error)), &["event 1 was not waited for"]);
                false
            }
        }
    };
    some_but_not_all(u64::try_from((0..SEEDS).filter(early).count()).unwrap());
}

/// How many seeds give a byte that a test reads after some acts.
fn seeds_with(wanted: u8, act: impl Fn(&Bench, &Memory, &mut Pinned)) -> u64 {
    let gives = |&seed: &u64| {
        let bench = Bench::new(seed);
        let memory = bench.zeros(1);
        bench.wait(Stream::Compute).unwrap();
        let mut pinned = Pinned::new(&bench.device, 1).unwrap();
        act(&bench, &memory, &mut pinned);
        pinned[0] == wanted
    };
    u64::try_from((0..SEEDS).filter(gives).count()).unwrap()
}

fn some_but_not_all(found: u64) {
    assert!(0 < found && found < SEEDS, "{found} of {SEEDS}");
}

#[test]
fn streams_that_do_not_wait_for_each_other_show_with_some_seed() {
    let act = |waits: bool| {
        move |bench: &Bench, memory: &Memory, pinned: &mut Pinned| {
            let device = &bench.device;
            device.fill(Stream::Compute, memory.address(), 7, 1).unwrap();
            let filled = device.record(Stream::Compute).unwrap();
            if waits {
                device.wait_in(Stream::Out, filled).unwrap();
            }
            // The stream knows what it waits for.
            device.drop_event(filled);
            device.copy_out(Stream::Out, memory.address(), pinned.address(), 1).unwrap();
            bench.wait(Stream::Out).unwrap();
        }
    };
    assert_eq!(seeds_with(7, act(true)), SEEDS);
    some_but_not_all(seeds_with(7, act(false)));
}

#[test]
fn waits_reach_through_several_streams() {
    let through = |bench: &Bench, memory: &Memory, pinned: &mut Pinned| {
        let device = &bench.device;
        device.copy_in(Stream::In, &[1], memory.address()).unwrap();
        let copied = device.record(Stream::In).unwrap();
        device.wait_in(Stream::Compute, copied).unwrap();
        let done = device.record(Stream::Compute).unwrap();
        device.wait_in(Stream::Out, done).unwrap();
        device.copy_out(Stream::Out, memory.address(), pinned.address(), 1).unwrap();
        bench.wait(Stream::Out).unwrap();
    };
    assert_eq!(seeds_with(1, through), SEEDS);
}

#[test]
fn a_host_that_does_not_wait_shows_with_every_seed() {
    let read = |waits: bool| {
        move |bench: &Bench, memory: &Memory, pinned: &mut Pinned| {
            let (from, to) = (memory.address(), pinned.address());
            bench.device.copy_out(Stream::Out, from, to, 1).unwrap();
            if waits {
                bench.wait(Stream::Out).unwrap();
            }
        }
    };
    assert_eq!(seeds_with(0, read(true)), SEEDS);
    assert_eq!(seeds_with(0, read(false)), 0);
}

#[test]
fn pinned_memory_is_read_late_and_other_memory_at_once() {
    let change = |is_pinned: bool| {
        move |bench: &Bench, memory: &Memory, pinned: &mut Pinned| {
            pinned[0] = 7;
            let mut own = vec![7];
            let from: &mut [u8] = if is_pinned { pinned } else { &mut own };
            bench.device.copy_in(Stream::In, from, memory.address()).unwrap();
            let event = bench.device.record(Stream::In).unwrap();
            from[0] = 8;
            bench.device.wait_for(event).unwrap();
            drop(own);
            pinned.copy_from_slice(&bench.bytes(memory));
        }
    };
    assert_eq!(seeds_with(7, change(false)), SEEDS);
    some_but_not_all(seeds_with(7, change(true)));
    assert_eq!(seeds_with(7, change(true)) + seeds_with(8, change(true)), SEEDS);
}

#[test]
fn memory_is_given_back_when_all_is_done() {
    let free = |bench: &Bench, memory: &Memory, pinned: &mut Pinned| {
        let (from, to) = (memory.address(), pinned.address());
        bench.device.copy_out(Stream::Out, from, to, 1).unwrap();
        drop(Memory::new(&bench.device, 1).unwrap());
    };
    assert_eq!(seeds_with(0, free), SEEDS);
    let unpin = |bench: &Bench, memory: &Memory, pinned: &mut Pinned| {
        let (from, to) = (memory.address(), pinned.address());
        bench.device.copy_out(Stream::Out, from, to, 1).unwrap();
        drop(Pinned::new(&bench.device, 1).unwrap());
    };
    assert_eq!(seeds_with(0, unpin), SEEDS);
}

#[test]
fn what_fails_late_is_reported_by_a_later_call() {
    let launch = Launch { stem: "faults", kernel: "trap", blocks: 1, threads: 64, shared: 0 };
    for seed in 0..SEEDS {
        let bench = Bench::new(seed);
        let (device, to) = (&bench.device, bench.zeros(4096));
        device.launch(Stream::Compute, launch, &[to.address().into()]).unwrap();
        // What was asked for behind it is not done, or else this would be the reason.
        let _refused = device.launch(Stream::Compute, Launch { kernel: "none", ..launch }, &[]);
        let said = match bench.wait(Stream::Compute) {
            Err(DeviceError::Lost { at: "launch", why }) => why,
            other => panic!("{other:?}"),
        };
        holds(&said, &["kernel trap", "__trap (faults.cu:", &format!("(device seed {seed})")]);
        assert_eq!(reason(device.fill(Stream::In, to.address(), 0, 1)), said);

        // Memory that is given back has no way to say it; the next call has.
        let bench = Bench::new(seed);
        let to = bench.zeros(4096);
        bench.device.launch(Stream::Compute, launch, &[to.address().into()]).unwrap();
        drop(to);
        assert_eq!(reason(bench.wait(Stream::In)), said);
    }
}

#[test]
fn launches_from_several_threads_do_not_mix() {
    let words = numbers(1000, 100);
    let run = |seed| {
        let bench = Bench::new(seed);
        let (from, to) = (bench.words(&words), bench.zeros(64));
        let args = [from.address().into(), to.address().into(), 1000u32.into()];
        for _ in 0..50 {
            bench.device.fill(Stream::Compute, to.address(), 0, 64).unwrap();
            bench.launch("counts", 3, 96, 64, &args).unwrap();
        }
        bench.read(&to)
    };
    let expected = run(0);
    assert_eq!(expected.iter().sum::<u32>(), 1000);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (1..5).map(|seed| scope.spawn(move || run(seed))).collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), expected);
        }
    });
}

#[test]
fn a_stem_that_is_not_there_does_not_compile() {
    let launch = Launch { stem: "no_such_stem", kernel: "none", blocks: 1, threads: 32, shared: 0 };
    let error = Bench::new(1).device.launch(Stream::Compute, launch, &[]).unwrap_err();
    assert!(matches!(&error, DeviceError::Compile { stem, .. } if stem == "no_such_stem"));
}
