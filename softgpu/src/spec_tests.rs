//! Tests of SPEC.

use super::*;

#[test]
fn every_key_is_read() {
    let spec: Spec =
        "name=a-1,count=2,mem=1.5GiB,sm=8,driver=13000,link=50GiB/s,bw=3TB/s,ctx=4MiB,seed=7,linger=20,\
        slice=1ms,switch=50us,preempt=100us,launch=5us,load=1s,inst=10ns,watchdog=5000,stamp=any,room=free,upload=along,stage=waits,free=now,vmm=off,managed=fixed,home=freed,listed=all,reserved=512MiB,sessions=on,fault=30us,\
        duplex=half,peer=off,pin=6GiB/s,decompress=on,vmmcall=20us,order=lenient,exit=refuse,reuse=lifo"
            .parse()
            .unwrap();
    let expected = Spec {
        name: Some("a-1".into()),
        count: 2,
        mem: 3 << 29,
        sm: 8,
        driver: 13000,
        link: 50 << 30,
        bw: 3_000_000_000_000,
        ctx: 4 << 20,
        seed: 7,
        linger: 20,
        slice: 1_000_000,
        switch: 50_000,
        preempt: 100_000,
        launch: 5_000,
        load: 1_000_000_000,
        inst: 10,
        watchdog: 5_000,
        stamp: Stamp::Any,
        room: Room::Free,
        upload: Upload::Along,
        stage: Stage::Waits,
        free: Free::Now,
        vmm: false,
        managed: ManagedAccess::Fixed,
        home: HomeMemory::Freed,
        listed: Listed::All,
        reserved: 512 << 20,
        sessions: true,
        fault: 30_000,
        duplex: Duplex::Half,
        peer: false,
        pin: 6 << 30,
        decompress: true,
        vmmcall: 20_000,
        order: Order::Lenient,
        exit: Exit::Refuse,
        reuse: Reuse::Lifo,
    };
    assert_eq!(spec, expected);
    assert_eq!("".parse::<Spec>().unwrap(), Spec::default());
}

#[test]
fn the_canonical_text_reads_back_as_the_same_machine() {
    for text in [
        "seed=9,mem=512MiB,name=x,slice=1ms,load=3s",
        "managed=fixed,home=freed,listed=all,reserved=1GiB,sessions=on,fault=1us,duplex=half,pin=5GB/s,vmmcall=2us",
        "pin=0",
    ] {
        let spec: Spec = text.parse().unwrap();
        assert_eq!(spec.to_string().parse::<Spec>().unwrap(), spec);
    }
}

#[test]
fn the_longest_canonical_text_fits_into_a_machines_state() {
    let longest = Spec {
        name: Some("x".repeat(64)),
        count: MAX_DEVICES,
        mem: u64::MAX,
        sm: 1024,
        driver: 13050,
        link: u64::MAX,
        bw: u64::MAX,
        ctx: u64::MAX,
        seed: u64::MAX,
        linger: 10_000,
        slice: u64::MAX,
        switch: u64::MAX,
        preempt: u64::MAX,
        launch: u64::MAX,
        load: u64::MAX,
        inst: u64::MAX,
        watchdog: u64::MAX,
        room: Room::Locked,
        vmm: false,
        home: HomeMemory::Freed,
        reserved: u64::MAX,
        fault: u64::MAX,
        pin: u64::MAX,
        vmmcall: u64::MAX,
        order: Order::Lenient,
        exit: Exit::Refuse,
        ..Spec::default()
    };
    // The words that are not named here have as many letters in each case.
    let length = longest.to_string().len() + 16;
    assert!(length <= crate::world::SPEC_TEXT, "{length}");
}

#[test]
fn an_invalid_spec_is_refused_with_key_value_and_accepted_form() {
    for text in [
        "mem=0",
        "mem=1GiB2",
        "mem=3MiB",
        "mem=-1",
        "mem=99999999999TiB",
        "count=0",
        "count=17",
        "name=",
        "name=../x",
        "name=a/b",
        "driver=12081",
        "driver=9000",
        "link=25GiB",
        "bw=0/s",
        "seed=x",
        "memory=1GiB",
        "count",
        "sm=1,sm=1",
        "ctx=17GiB",
        "ctx=0",
        "ctx=2047KiB",
        "linger=-1",
        "reserved=17GiB",
        "sessions=yes",
        "slice=0",
        "slice=2",
        "slice=2s",
        "switch=101ms",
        "preempt=-1us",
        "launch=5 us",
        "load=1m",
        "stamp=all",
        "vmm=no",
        "decompress=1",
        "room=1",
        "upload=late",
        "stage=late",
        "free=never",
        "order=none",
        "exit=1",
        "managed=1",
        "home=gone",
        "listed=managed",
        "fault=1",
        "fault=101ms",
        "duplex=1",
        "pin=6GiB",
        "pin=-1/s",
        "vmmcall=1h",
        "mem=1.GiB",
        "mem=.5GiB",
    ] {
        let error = text.parse::<Spec>().expect_err(text);
        let last = text.rsplit(',').next().unwrap();
        assert_eq!(error.key, last.split('=').next().unwrap(), "{text}");
        assert!(error.to_string().contains("expected "), "{error}");
    }
}
