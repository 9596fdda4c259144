//! Memory that the next daemon finds in files.

use std::fs::Permissions;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};

use gpushared::spill::SpillFolder;

use super::*;

impl Scene {
    /// A daemon that stores in this folder finds a process that is out, with nothing on the host.
    fn found_out(folder: SpillFolder) -> Self {
        let mut scene = Self::begun("swap");
        scene.node.spill_to(folder);
        scene.registers(ConnId(1));
        scene.says(&Request::Residency(Residency {
            device_index: 0,
            epoch: 0,
            place: Place::Out,
            movable: SIZE,
            away: SIZE,
            host: 0,
            residue: Residue::default(),
        }));
        scene.says(&Request::Adopted { instance: 1 });
        scene.node.recovered(NOW + Nanos::secs(2));
        scene
    }

    /// The process shows a file of this mode, which has its bytes.
    pub(super) fn shows_file(&mut self, file: &File, mode: u32) {
        let bytes = vec![1; usize::try_from(SIZE).unwrap()];
        file.write_all_at(&bytes, 0).unwrap();
        file.set_permissions(Permissions::from_mode(mode)).unwrap();
        let shown = file.try_clone().unwrap();
        let shown = Foreign::new(shown.into(), &self.node.lanes().own());
        self.node.present_file(NOW, self.client, 77, Some(shown));
        self.work();
        self.is_looked_at(NOW);
    }

    /// What is reserved on the host for it.
    fn reserved(&mut self) -> u64 {
        let page = Control::Page {
            of: Listing::Residency,
            from: Cursor::default(),
        };
        self.node.command(NOW, ConnId(1003), 1, &page);
        loop {
            if let Some(Effect::Command { reply, .. }) = self.node.poll_effect() {
                let ControlReply::Page {
                    rows: Rows::Residency(rows),
                    ..
                } = reply
                else {
                    panic!("{reply:?}")
                };
                return rows[0].host;
            }
        }
    }
}

#[test]
fn for_memory_found_in_a_commands_file_nothing_is_reserved() {
    for (mode, reserved) in [(0o400, 0), (0o600, SIZE)] {
        let place = tempfile::tempdir().unwrap();
        let folder = SpillFolder::open(&place.path().join("spill")).unwrap();
        let mut scene = Scene::found_out(folder);
        assert_eq!(scene.reserved(), SIZE, "before it is shown");
        scene.shows_file(&tempfile::tempfile_in(place.path()).unwrap(), mode);
        assert_eq!(scene.reserved(), reserved, "{mode:o}");
    }
}
