use super::*;

#[test]
fn a_tenant_is_read_as_it_is_written() {
    let text =
        "name=a,share=70,cap=80,priority=900,kernel=50us,mode=burst,procs=2,every=10ms,depth=8";
    let tenant: Tenant = text.parse().unwrap();
    assert_eq!(tenant.kernel, Duration::from_micros(50));
    assert_eq!(
        (tenant.share, tenant.cap, tenant.priority),
        (Some(70), Some(80), Some(900))
    );
    assert_eq!(tenant.to_string().parse::<Tenant>().unwrap(), tenant);
    let gang: Tenant = "name=g,mode=gang,gpus=3+1".parse().unwrap();
    assert_eq!((&gang.gpus[..], gang.needs()), (&[1, 3][..], 4));
    assert_eq!(gang.to_string().parse::<Tenant>().unwrap(), gang);
    let random: Tenant = "name=r,mode=burst,every=10ms,arrivals=poisson"
        .parse()
        .unwrap();
    assert_eq!((random.launches(), random.waits()), (8, true));
    assert_eq!(random.to_string().parse::<Tenant>().unwrap(), random);
    for text in [
        "name=c,mode=copy,copy=3MiB",
        "name=m,mode=memset,copy=3MiB",
        "name=d,kernel=500us,copy=1MiB",
        "name=e,mode=sync,every=3ms,churn=2s",
        "name=f,mode=decode,nodes=40,every=20ms",
        "name=g,mode=gang,gpus=1,job=train",
    ] {
        let tenant: Tenant = text.parse().unwrap();
        assert_eq!(tenant.to_string().parse::<Tenant>().unwrap(), tenant);
    }
    let plain: Tenant = "name=b".parse().unwrap();
    assert_eq!((plain.launches(), plain.waits()), (1, false));
    assert_eq!((&plain.gpus[..], plain.needs()), (&[0][..], 1));
    assert_eq!(plain.to_string().parse::<Tenant>().unwrap(), plain);
}

#[test]
fn what_is_not_accepted_is_refused_by_key_and_value() {
    for (text, blamed) in [
        ("kernel=1ms", "needs a name"),
        ("name=A", "name=\"A\""),
        ("name=a,share=0", "share=\"0\""),
        ("name=a,share=101", "share=\"101\""),
        ("name=a,kernel=5", "kernel=\"5\""),
        ("name=a,kernel=11s", "kernel=\"11s\""),
        ("name=a,mode=deep", MODES_ACCEPTED),
        ("name=a,every=5ms", "every= is for mode=sync"),
        ("name=a,mode=sync,arrivals=poisson", "every=10ms"),
        (
            "name=a,mode=sync,every=5ms,arrivals=even",
            "regular, poisson",
        ),
        ("name=a,mode=gang", "gpus=0+1"),
        ("name=a,mode=gang,gpus=1", "gpus=0+1"),
        ("name=a,mode=gang,gpus=0+1,every=5ms", "every="),
        ("name=a,gpus=0+1", "are for mode=gang"),
        ("name=a,mode=gang,gpus=1+1", "different GPUs"),
        ("name=a,gpus=16", "gpus=\"16\""),
        ("name=a,gpus=", "gpus=\"\""),
        ("name=a,copy=2GiB", "at most 1GiB"),
        ("name=a,copy=50%", "copy=\"50%\""),
        ("name=a,mode=gang,gpus=0+1,copy=1MiB", "copy= is not for"),
        ("name=a,mode=copy,every=5ms", "every= is for"),
        ("name=a,mode=memset,every=5ms", "every= is for"),
        ("name=a,churn=2s", "every="),
        ("name=a,mode=sync,every=5ms,churn=100ms", "at least 500ms"),
        ("name=a,job=j", "job= is for mode=gang"),
        ("name=a,mode=gang,gpus=0+1,job=j", "has one GPU"),
        ("name=a,mode=gang,job=j,procs=2", "has one process"),
        ("name=a,mode=gang,job=J", "job=\"J\""),
        ("name=a,weight=2", "\"weight\" is no key"),
        ("name=a,share", "\"share\" is not key=value"),
    ] {
        let said = text.parse::<Tenant>().unwrap_err();
        assert!(said.contains(blamed), "{text}: {said}");
    }
}

#[test]
fn a_key_that_its_mode_does_not_read_is_refused() {
    for (text, blamed) in [
        (
            "name=a,mode=copy,kernel=20ms",
            "kernel= is not for mode=copy",
        ),
        (
            "name=a,mode=sync,nodes=5",
            "nodes= is not for mode=sync; it is for mode=graph, mode=decode",
        ),
        ("name=a,mode=sync,depth=9", "depth= is not for mode=sync"),
        (
            "name=a,mode=decode,depth=9",
            "depth= is not for mode=decode",
        ),
        (
            "name=a,mode=stream,depth=9",
            "depth= is not for mode=stream",
        ),
        ("name=a,copy=0", "copy=\"0\" is refused"),
        ("name=a,mode=copy,copy=0B", "copy=\"0B\" is refused"),
        ("name=a,cap=5,cap=50", "cap= is given twice"),
        ("name=a,mode=sync,mode=copy", "mode= is given twice"),
    ] {
        let said = text.parse::<Tenant>().unwrap_err();
        assert!(said.contains(blamed), "{text}: {said}");
    }
    for text in [
        "name=a,depth=9,kernel=1ms",
        "name=a,mode=gang,gpus=0+1,depth=9,kernel=1ms",
        "name=a,mode=graph,depth=9,nodes=5,kernel=1ms",
        "name=a,mode=memset,copy=1MiB",
    ] {
        assert!(text.parse::<Tenant>().is_ok(), "{text}");
    }
}

#[test]
fn a_graph_takes_as_long_as_its_nodes() {
    let tenant: Tenant = "name=a,kernel=50us,mode=graph,nodes=20".parse().unwrap();
    assert_eq!(tenant.launch_ns(), 1_000_000);
}

#[test]
fn one_with_pauses_asks_for_a_part_of_the_device_and_others_for_all() {
    let asks = |text: &str| text.parse::<Tenant>().unwrap().asks();
    assert_eq!(asks("name=a,kernel=300us,mode=sync,every=1ms"), Some(0.3));
    let burst = "name=a,kernel=100us,mode=burst,depth=8,every=10ms,procs=2";
    assert_eq!(asks(burst), Some(0.16));
    assert_eq!(asks("name=a,kernel=300us,mode=sync"), None);
    assert_eq!(asks("name=a,mode=copy"), None);
}

#[test]
fn a_copy_has_a_size_and_no_time_of_the_multiprocessors() {
    let chunk = |text: &str| {
        let tenant = text.parse::<Tenant>().unwrap();
        (tenant.chunk(), tenant.launch_ns())
    };
    assert_eq!(chunk("name=a,mode=copy"), (CHUNK, 0));
    assert_eq!(chunk("name=a,mode=copy,copy=1MiB"), (1 << 20, 0));
    assert_eq!(chunk("name=a,copy=1MiB"), (1 << 20, 500_000));
    assert_eq!(chunk("name=a"), (0, 500_000));
}

#[test]
fn small_copies_are_submitted_in_pieces_that_outlast_a_wake_up() {
    let piece = |text: &str| text.parse::<Tenant>().unwrap().copies_a_piece();
    assert_eq!(piece("name=a,mode=stream,copy=4MiB"), 64);
    assert_eq!(piece("name=a,mode=stream,copy=32MiB"), 8);
    assert_eq!(piece("name=a,mode=copy,copy=32MiB"), 2);
    assert_eq!(piece("name=a,mode=memset,copy=1"), 64);
    // Large ones take long enough each.
    assert_eq!(piece("name=a,mode=copy"), 1);
    assert_eq!(piece("name=a,mode=stream,copy=128MiB"), 1);
}
