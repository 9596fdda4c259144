//! Threads that wait for each other: barriers, warps, atomics, and threads that never come.

use softgpu_ptx::TrapKind;

use crate::common::{BASE, Device, launch, module, run};

/// A kernel that stores `%r9` of each thread.
fn stored(body: &str, grid: u32, block: u32) -> Result<Vec<u32>, TrapKind> {
    let text = format!(
        ".visible .entry one(.param .u64 out, .param .u64 word) {{\n.reg .pred %p<6>; .reg .b32 %r<12>; .reg .b64 %rd<6>;\n\
         .shared .align 8 .b8 memory[256];\n\
         ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [word]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;\n\
         mad.lo.u32 %r4, %r2, %r3, %r1; mov.u32 %r9, 0;\n{body}\n\
         mad.wide.u32 %rd3, %r4, 4, %rd1; st.global.u32 [%rd3], %r9; ret; }}"
    );
    let count = (grid * block) as usize;
    let mut device = Device::new(4 * count + 64);
    let mut launch = launch(&module(&text), "one", grid, block, &[BASE + 64, BASE]);
    launch.watchdog = 20_000_000;
    run(launch, &mut device).map_err(|trap| trap.kind)?;
    Ok(device.words(BASE + 64, count))
}

#[test]
fn atomics_of_all_threads_add_up_and_each_sees_another_number() {
    let mut seen = stored("atom.global.add.u32 %r9, [%rd2], 1;", 10, 50).unwrap();
    seen.sort_unstable();
    assert_eq!(seen, (0..500).collect::<Vec<u32>>());
    let seen = stored("atom.inc.u32 %r9, [%rd2], 3;", 1, 8).unwrap();
    assert_eq!(seen, [0, 1, 2, 3, 0, 1, 2, 3]);
    let seen = stored("atom.dec.u32 %r9, [%rd2], 2;", 1, 5).unwrap();
    assert_eq!(seen, [0, 2, 1, 0, 2]);
    let seen = stored(
        "sub.u32 %r5, 0, %r1; atom.global.min.s32 %r9, [%rd2], %r5;",
        1,
        3,
    )
    .unwrap();
    assert_eq!(seen, [0, 0, -1_i32 as u32]);
    let seen = stored(
        "atom.exch.b32 %r9, [%rd2], %r1; atom.global.cas.b32 %r9, [%rd2], %r1, 77;",
        1,
        2,
    )
    .unwrap();
    assert_eq!(seen, [0, 1]);
    let seen = stored(
        "mov.f32 %r5, 0f3f000000; atom.add.f32 %r9, [%rd2], %r5;",
        1,
        3,
    );
    assert_eq!(seen.unwrap(), [0.0_f32, 0.5, 1.0].map(f32::to_bits));
}

#[test]
fn a_lock_of_one_thread_does_not_stop_the_others() {
    // Each thread takes the lock, changes the next word without an atomic operation, and unlocks.
    let body = "$TAKE: atom.acquire.gpu.cas.b32 %r5, [%rd2], 0, 1; setp.ne.u32 %p1, %r5, 0; @%p1 bra $TAKE;\n\
                ld.volatile.global.u32 %r9, [%rd2+4]; nanosleep.u32 20; add.u32 %r6, %r9, 1; st.volatile.global.u32 [%rd2+4], %r6;\n\
                membar.gl; atom.exch.b32 %r5, [%rd2], 0;";
    let mut seen = stored(body, 4, 40).unwrap();
    seen.sort_unstable();
    assert_eq!(seen, (0..160).collect::<Vec<u32>>());
}

/// Code from before compute capability 7.0: no promise holds, and every device still runs it so.
#[test]
fn a_warp_reduces_volatile_memory_without_a_barrier() {
    let step = |distance: u32| {
        format!(
            "ld.volatile.shared.u32 %r7, [%r5]; ld.volatile.shared.u32 %r8, [%r5+{}];\n\
             add.u32 %r7, %r7, %r8; st.volatile.shared.u32 [%r5], %r7;\n",
            4 * distance
        )
    };
    let steps: String = [16, 8, 4, 2, 1].map(step).concat();
    let body = format!(
        "mov.u32 %r5, memory; shl.b32 %r6, %r1, 2; add.u32 %r5, %r5, %r6;\n\
         st.volatile.shared.u32 [%r5], %r1;\n{steps}ld.volatile.shared.u32 %r9, [%r5];"
    );
    assert_eq!(stored(&body, 1, 32).unwrap()[0], (0..32).sum::<u32>());
}

#[test]
fn blocks_that_are_resident_wait_for_each_other() {
    let body = "atom.add.u32 %r5, [%rd2], 1;\n\
                $WAIT: ld.volatile.u32 %r6, [%rd2]; setp.lt.u32 %p1, %r6, 96; @%p1 bra $WAIT; mov.u32 %r9, %r6;";
    let seen = stored(body, 3, 32).unwrap();
    assert_eq!(seen, [96; 96]);
    // Eight blocks are resident at most: the ninth never begins.
    let body = body.replace("96;", "288;");
    assert_eq!(stored(&body, 9, 32), Err(TrapKind::Watchdog));
}

#[test]
fn barriers_reduce_count_and_take_numbers() {
    let odd = "and.b32 %r5, %r1, 1; setp.ne.u32 %p1, %r5, 0;";
    assert_eq!(
        stored(&format!("{odd} bar.red.popc.u32 %r9, 0, %p1;"), 1, 33).unwrap(),
        [16; 33]
    );
    assert_eq!(
        stored(
            &format!("{odd} bar.red.or.pred %p2, 1, %p1; selp.u32 %r9, 5, 6, %p2;"),
            1,
            4
        )
        .unwrap(),
        [5; 4]
    );
    assert_eq!(
        stored(
            &format!("{odd} barrier.red.and.pred %p2, 1, 4, !%p1; selp.u32 %r9, 5, 6, %p2;"),
            1,
            4
        )
        .unwrap(),
        [6; 4]
    );
    // The first warp only tells the barrier; the second one waits for both, and sees the value.
    let body = "setp.gt.u32 %p1, %r1, 31; @%p1 bra $SECOND; st.shared.u32 [memory], 9; bar.arrive 3, 64; bra $END;\n\
                $SECOND: bar.sync 3, 64; ld.shared.u32 %r9, [memory]; $END:";
    let seen = stored(body, 1, 64).unwrap();
    assert_eq!((&seen[..32], &seen[32..]), (&[0; 32][..], &[9; 32][..]));
}

#[test]
fn threads_that_have_ended_are_not_waited_for() {
    let seen = stored(
        "setp.gt.u32 %p1, %r1, 3; @%p1 bra $END; bar.sync 0; mov.u32 %r9, 1; $END:",
        1,
        8,
    )
    .unwrap();
    assert_eq!(seen, [1, 1, 1, 1, 0, 0, 0, 0]);
}

#[test]
fn a_barrier_that_not_all_reach_ends_the_kernel() {
    let body =
        "setp.gt.u32 %p1, %r1, 3; @%p1 bra $OTHER; bar.sync 0; bra $END; $OTHER: bar.sync 1; $END:";
    assert_eq!(stored(body, 1, 8), Err(TrapKind::Deadlock));
    assert_eq!(stored("bar.sync 0, 64;", 1, 32), Err(TrapKind::Deadlock));
    let body = "setp.gt.u32 %p1, %r1, 3; @%p1 bra $OTHER; bar.warp.sync 0xff; bra $END; $OTHER: bar.sync 1; $END:";
    assert_eq!(stored(body, 1, 8), Err(TrapKind::Deadlock));
    assert_eq!(stored("$LOOP: bra $LOOP;", 1, 1), Err(TrapKind::Watchdog));
}

#[test]
fn lanes_shuffle_in_each_direction_and_say_whether_they_were_in_range() {
    let shuffle = |how: &str| {
        stored(
            &format!("shfl.sync.{how}, -1; @!%p1 add.u32 %r9, %r9, 100;"),
            1,
            32,
        )
        .unwrap()
    };
    let lanes = |of: &dyn Fn(u32) -> u32| (0..32).map(of).collect::<Vec<u32>>();
    assert_eq!(
        shuffle("up.b32 %r9|%p1, %r1, 1, 0"),
        lanes(&|lane| if lane == 0 { 100 } else { lane - 1 })
    );
    assert_eq!(
        shuffle("down.b32 %r9|%p1, %r1, 4, 31"),
        lanes(&|lane| if lane > 27 { lane + 100 } else { lane + 4 })
    );
    assert_eq!(
        shuffle("bfly.b32 %r9|%p1, %r1, 5, 31"),
        lanes(&|lane| lane ^ 5)
    );
    assert_eq!(shuffle("idx.b32 %r9|%p1, %r1, 7, 31"), lanes(&|_| 7));
    // Segments of eight lanes.
    assert_eq!(
        shuffle("idx.b32 %r9|%p1, %r1, 3, 0x181f"),
        lanes(&|lane| lane / 8 * 8 + 3)
    );
    assert_eq!(
        shuffle("down.b32 %r9|%p1, %r1, 1, 0x181f"),
        lanes(&|lane| if lane % 8 == 7 { lane + 100 } else { lane + 1 })
    );
    assert_eq!(
        shuffle("up.b32 %r9|%p1, %r1, 2, 0x1800"),
        lanes(&|lane| if lane % 8 < 2 { lane + 100 } else { lane - 2 })
    );
}

#[test]
fn warps_vote_match_and_reduce() {
    let odd = "and.b32 %r5, %r1, 1; setp.ne.u32 %p1, %r5, 0;";
    assert_eq!(
        stored(&format!("{odd} vote.sync.ballot.b32 %r9, %p1, -1;"), 1, 32).unwrap(),
        [0xaaaa_aaaa; 32]
    );
    assert_eq!(
        stored(
            &format!("{odd} vote.sync.any.pred %p2, %p1, -1; selp.u32 %r9, 1, 0, %p2;"),
            1,
            4
        )
        .unwrap(),
        [1; 4]
    );
    assert_eq!(
        stored(
            &format!("{odd} vote.sync.all.pred %p2, !%p1, -1; selp.u32 %r9, 1, 0, %p2;"),
            1,
            4
        )
        .unwrap(),
        [0; 4]
    );
    assert_eq!(
        stored(&format!("{odd} match.any.sync.b32 %r9, %r5, 15;"), 1, 4).unwrap(),
        [5, 10, 5, 10]
    );
    assert_eq!(
        stored("match.all.sync.b32 %r9|%p1, %r3, 15;", 1, 4).unwrap(),
        [15; 4]
    );
    assert_eq!(
        stored("redux.sync.add.s32 %r9, %r1, -1;", 1, 32).unwrap(),
        [496; 32]
    );
    assert_eq!(
        stored("redux.sync.max.u32 %r9, %r1, -1;", 2, 40).unwrap()[..41],
        [vec![31; 32], vec![39; 8], vec![31]].concat()
    );
    // Each side of a branch is active by itself, and a lane that has ended is not.
    let body = "setp.eq.u32 %p1, %r1, 7; @%p1 bra $END; setp.gt.u32 %p1, %r1, 3; @%p1 bra $OTHER; activemask.b32 %r9; bra $END;\n\
                $OTHER: activemask.b32 %r9; $END:";
    assert_eq!(
        stored(body, 1, 8).unwrap(),
        [15, 15, 15, 15, 0x70, 0x70, 0x70, 0]
    );
}

#[test]
fn special_registers_name_threads_blocks_and_lanes() {
    let one = |name: &str| stored(&format!("mov.u32 %r9, %{name};"), 3, 40).unwrap();
    assert_eq!(one("nctaid.x"), [3; 120]);
    assert_eq!(one("ntid.x"), [40; 120]);
    assert_eq!(one("ntid.z"), [1; 120]);
    assert_eq!(one("tid.y"), [0; 120]);
    assert_eq!(
        one("laneid")[30..42],
        [30, 31, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1]
    );
    assert_eq!(one("warpid")[30..34], [0, 0, 1, 1]);
    assert_eq!(one("lanemask_lt")[..3], [0, 1, 3]);
    assert_eq!(one("lanemask_ge")[31], 0x8000_0000);
    let timer = stored(
        "mov.u64 %rd4, %globaltimer; mov.u64 %rd5, %clock64; sub.u64 %rd5, %rd5, %rd4; cvt.u32.u64 %r9, %rd5;",
        1,
        1,
    );
    assert!(timer.unwrap()[0] > 0);
}
