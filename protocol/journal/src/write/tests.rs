use std::cell::RefCell;
use std::collections::BTreeSet;

use super::*;
use crate::line::json;
use crate::read;
use gpushare_protocol::wire::EventRecord;

fn line(instance: u64, number: u64) -> Vec<u8> {
    let record = EventRecord {
        instance,
        number,
        at_ms: 1000 + number,
        kind: "k".to_owned(),
        tenant: None,
        device: None,
        text: "x".repeat(50),
        facts: vec![],
    };
    let mut text = json(&record).into_bytes();
    text.push(b'\n');
    text
}

fn numbers(folder: &std::path::Path) -> Vec<u64> {
    let past = read(folder, 0).unwrap();
    past.records.iter().map(|record| record.number).collect()
}

fn size(folder: &std::path::Path) -> u64 {
    let files = fs::read_dir(folder).unwrap().flatten();
    files.map(|file| file.metadata().unwrap().len()).sum()
}

#[test]
fn a_journal_keeps_its_newest_events_within_its_bound() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = Bounds { bytes: 4000 };
    let mut writer = Writer::new(folder.path().join("j"), bounds, Readers::Owner);
    for number in 1..=200 {
        writer.append(&line(1, number)).unwrap();
        assert!(size(&folder.path().join("j")) <= 4000);
    }
    let kept = numbers(&folder.path().join("j"));
    assert!(kept.len() > 10, "{kept:?}");
    let newest: Vec<u64> = (201 - kept.len() as u64..=200).collect();
    assert_eq!(kept, newest, "the newest, in order, none twice");
}

/// Lustre without `flock` answers so, or NFS without its lock daemon.
#[test]
fn a_journal_keeps_its_bound_where_there_are_no_locks() {
    for error in [Errno::ENOSYS, Errno::ENOLCK] {
        let folder = tempfile::tempdir().unwrap();
        let bounds = Bounds { bytes: 4000 };
        let mut writer = Writer::new(folder.path().to_owned(), bounds, Readers::Owner);
        writer.lock = match error {
            Errno::ENOSYS => |file| Err((file, Errno::ENOSYS)),
            _ => |file| Err((file, Errno::ENOLCK)),
        };
        for number in 1..=200 {
            writer.append(&line(1, number)).unwrap();
            assert!(size(folder.path()) <= 4000, "{error}");
        }
        let told = writer.take_unlocked().unwrap();
        assert_eq!(told.raw_os_error(), Some(error as i32));
        assert_eq!(numbers(folder.path()).last(), Some(&200));
    }
}

#[test]
fn while_another_daemon_has_the_lock_no_file_is_begun() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = Bounds { bytes: 4000 };
    let mut writer = Writer::new(folder.path().to_owned(), bounds, Readers::Owner);
    writer.lock = |file| Err((file, Errno::EWOULDBLOCK));
    for number in 1..=200 {
        writer.append(&line(1, number)).unwrap();
    }
    assert_eq!(numbers(folder.path()).len(), 200);
    assert!(writer.take_unlocked().is_none());
}

#[test]
fn two_daemons_share_a_journal() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = Bounds { bytes: 8000 };
    let mut writers = [1, 2].map(|_| Writer::new(folder.path().to_owned(), bounds, Readers::Owner));
    for number in 1..=100 {
        for (writer, instance) in writers.iter_mut().zip(1..) {
            writer.append(&line(instance, number)).unwrap();
        }
    }
    let past = read(folder.path(), 0).unwrap();
    assert_eq!(past.unreadable, 0);
    let last: Vec<_> = past.records[past.records.len() - 2..]
        .iter()
        .map(|record| (record.instance, record.number))
        .collect();
    assert_eq!(last, [(1, 100), (2, 100)]);
    assert!(past.records.len() > 20 && size(folder.path()) <= 8000);
}

#[test]
fn a_torn_line_costs_itself_only() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(folder.path().to_owned(), Bounds::default(), Readers::Owner);
    writer.append(&line(1, 1)).unwrap();
    let path = folder.path().join("journal.jsonl");
    let mut file = File::options().append(true).open(path).unwrap();
    file.write_all(&line(1, 2)[..30]).unwrap();
    let mut next = Writer::new(folder.path().to_owned(), Bounds::default(), Readers::Owner);
    next.append(&line(2, 3)).unwrap();
    let past = read(folder.path(), 0).unwrap();
    assert_eq!(numbers(folder.path()), [1, 3]);
    assert_eq!(past.unreadable, 1);
}

#[test]
fn a_line_that_one_daemon_tears_costs_another_none() {
    let folder = tempfile::tempdir().unwrap();
    let mut writers =
        [1, 2].map(|_| Writer::new(folder.path().to_owned(), Bounds::default(), Readers::Owner));
    let [one, other] = &mut writers;
    one.append(&line(1, 1)).unwrap();
    other.append(&line(2, 2)).unwrap();
    // The disk is full within its line, and has room again.
    let torn = &line(1, 3)[..30];
    one.file.as_mut().unwrap().file.write_all(torn).unwrap();
    other.append(&line(2, 4)).unwrap();
    one.append(&line(1, 5)).unwrap();
    let past = read(folder.path(), 0).unwrap();
    assert_eq!(numbers(folder.path()), [1, 2, 4, 5]);
    assert_eq!(past.unreadable, 1);
}

#[test]
fn where_no_line_is_torn_lines_follow_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let mut writers =
        [1, 2].map(|_| Writer::new(folder.path().to_owned(), Bounds::default(), Readers::Owner));
    for number in 1..=3 {
        for writer in &mut writers {
            writer.append(&line(1, number)).unwrap();
        }
    }
    let text = fs::read_to_string(folder.path().join("journal.jsonl")).unwrap();
    assert!(text.lines().all(|line| !line.is_empty()), "{text}");
    assert_eq!(text.lines().count(), 6);
}

thread_local! {
    /// The files that this thread's writers have made to survive.
    static SYNCED: RefCell<BTreeSet<u64>> = const { RefCell::new(BTreeSet::new()) };
}

#[test]
fn a_full_file_survives_a_power_failure_before_another_is_begun() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = Bounds { bytes: 40_000 };
    let mut writers = [1, 2].map(|_| Writer::new(folder.path().to_owned(), bounds, Readers::Owner));
    for writer in &mut writers {
        writer.sync = |file| {
            let file = file.metadata()?.ino();
            SYNCED.with_borrow_mut(|synced| synced.insert(file));
            Ok(())
        };
    }
    for number in 1..=120 {
        let writer = &mut writers[usize::from(number % 2 == 0)];
        writer.append(&line(1, number)).unwrap();
    }
    let inodes = |is_current: bool| {
        let files = fs::read_dir(folder.path()).unwrap().flatten();
        let files = files.filter(move |file| {
            let name = file.file_name();
            let name = name.to_string_lossy().into_owned();
            name.ends_with(".jsonl") && (name == "journal.jsonl") == is_current
        });
        files.map(|file| file.metadata().unwrap().ino())
    };
    assert!(inodes(false).count() > 0);
    let is_synced = |inode: u64| SYNCED.with_borrow(|synced| synced.contains(&inode));
    assert!(inodes(false).all(is_synced));
    // That one is told to in its time.
    assert!(!inodes(true).any(is_synced));
    writers.iter_mut().for_each(|writer| writer.sync().unwrap());
    assert!(inodes(true).all(is_synced));
}

#[test]
fn what_a_file_system_says_late_is_said_once_and_the_file_is_opened_anew() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(folder.path().to_owned(), Bounds::default(), Readers::Owner);
    writer.append(&line(1, 1)).unwrap();
    writer.sync = |_| Err(Errno::EDQUOT.into());
    let said = |writer: &mut Writer| writer.sync().err().and_then(|error| error.raw_os_error());
    assert_eq!(said(&mut writer), Some(Errno::EDQUOT as i32));
    assert!(writer.file.is_none());
    writer.sync = |_| Ok(());
    writer.append(&line(1, 2)).unwrap();
    assert_eq!(said(&mut writer), None);
    assert_eq!(numbers(folder.path()), [1, 2]);
}

#[test]
fn what_is_said_late_of_a_full_file_is_not_lost_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = Bounds { bytes: 4000 };
    let mut writer = Writer::new(folder.path().to_owned(), bounds, Readers::Owner);
    writer.sync = |_| Err(Errno::EIO.into());
    for number in 1..=60 {
        writer.append(&line(1, number)).unwrap();
    }
    writer.sync = |_| Ok(());
    let said = writer.sync().unwrap_err();
    assert_eq!(said.raw_os_error(), Some(Errno::EIO as i32));
    writer.sync().unwrap();
}

#[test]
fn a_journal_that_was_removed_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("j");
    let mut writer = Writer::new(place.clone(), Bounds::default(), Readers::Owner);
    writer.append(&line(1, 1)).unwrap();
    fs::remove_dir_all(&place).unwrap();
    writer.append(&line(1, 2)).unwrap();
    assert_eq!(numbers(&place), [2]);
}

#[test]
fn a_folder_that_others_write_or_a_link_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("j");
    fs::create_dir(&place).unwrap();
    fs::set_permissions(&place, Permissions::from_mode(0o777)).unwrap();
    let mut writer = Writer::new(place.clone(), Bounds::default(), Readers::Owner);
    let refused = writer.append(&line(1, 1)).unwrap_err().to_string();
    assert!(refused.contains("/j lets other users write"), "{refused}");
    fs::set_permissions(&place, Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink("/dev/null", place.join("journal.jsonl")).unwrap();
    assert!(writer.append(&line(1, 1)).is_err());
    fs::remove_file(place.join("journal.jsonl")).unwrap();
    writer.append(&line(1, 1)).unwrap();
    assert_eq!(numbers(&place), [1]);
}

#[test]
fn only_events_since_a_time_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(folder.path().to_owned(), Bounds::default(), Readers::Owner);
    for number in 1..=3 {
        writer.append(&line(1, number)).unwrap();
    }
    let past = read(folder.path(), 1002).unwrap();
    assert_eq!(past.records.len(), 2);
    // Nothing was written after that.
    let past = read(folder.path(), u64::MAX / 4).unwrap();
    assert!(past.records.is_empty());
    assert!(
        read(&folder.path().join("none"), 0)
            .unwrap()
            .records
            .is_empty()
    );
}

#[test]
fn other_users_read_a_machines_journal_and_no_users_own() {
    let folder = tempfile::tempdir().unwrap();
    for (readers, file, dir) in [
        (Readers::Owner, 0o600, 0o700),
        (Readers::Everybody, 0o644, 0o755),
    ] {
        let place = folder.path().join(format!("{file:o}"));
        DirBuilder::new().mode(0o700).create(&place).unwrap();
        let mut writer = Writer::new(place.clone(), Bounds::default(), readers);
        writer.append(&line(1, 1)).unwrap();
        let mode = |path: PathBuf| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(place.clone()), dir);
        assert_eq!(mode(place.join("journal.jsonl")), file);
    }
}
