//! What other programs call: mount(8) and mount.fuse3 by the helper forms, install.sh, shells,
//! man(1), and the system's log.

#![allow(clippy::doc_markdown, reason = "the contract is quoted word for word")]
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use support::got::error_of;
use support::kafkalog::{data_dir, hundred};
use support::mount::{detach, is_mounted, mount_entry, names, snapshot, umount};
use support::{OFFSETFS, code, err, is_root, mount, out, read, scratch, sh, sh_ok, skipped, told};

const HELPER: &str = "mount.offsetfs";

/// A data directory and a place for its mount, which is taken away when the test ends.
struct Place {
    home: tempfile::TempDir,
    source: PathBuf,
    at: PathBuf,
}

impl Place {
    fn new() -> Place {
        let home = scratch();
        let source = data_dir(home.path().join("source"), &[hundred()]);
        let at = home.path().join("mnt");
        fs::create_dir(&at).unwrap();
        symlink(OFFSETFS, home.path().join(HELPER)).unwrap();
        symlink(OFFSETFS, home.path().join("offsetfs")).unwrap();
        Place { home, source, at }
    }

    /// The program under `name`, with SOURCE, MOUNTPOINT and `words`. It returns when nobody holds
    /// its stdout and stderr any more.
    fn call(&self, name: &str, words: &[&str]) -> Output {
        let mut all = vec![self.home.path().join(name), self.source.clone(), self.at.clone()];
        all.extend(words.iter().map(PathBuf::from));
        sh("XDG_CACHE_HOME=$(dirname \"$1\")/cache \"$@\"", &all)
    }

    /// As `call`, and it must have mounted.
    fn mounts(&self, name: &str, words: &[&str]) -> Output {
        let done = self.call(name, words);
        assert_eq!(code(&done), 0, "{words:?}: {}", told(&done));
        assert!(done.stdout.is_empty(), "{}", told(&done));
        assert_eq!(read(self.at.join("t-0/by-offset/5")), "v5");
        done
    }

    fn flags(&self) -> Vec<String> {
        let (flags, _, _) = mount_entry(&self.at).expect("mounted");
        flags.split(',').map(str::to_owned).collect()
    }

    fn unmounts(&self) {
        let done = umount(&self.at);
        assert_eq!(code(&done), 0, "{}", told(&done));
        assert!(!is_mounted(&self.at));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        detach(&self.at);
    }
}

/// 1.1: "detach once the mount answers."
#[test]
fn helper_forms_return_when_the_mount_answers() {
    needs_fuse!();
    let place = Place::new();
    for name in [HELPER, "offsetfs"] {
        let done = place.mounts(name, &[]);
        assert!(done.stderr.is_empty(), "{}", told(&done));
        assert!(place.flags().contains(&"ro".to_owned()));
        place.unmounts();
    }
}

/// A daemon that kept what it inherited would hold a pipe or a lock of its caller for ever.
#[test]
fn nothing_of_the_caller_stays_open() {
    needs_fuse!();
    let place = Place::new();
    let script = "cd \"$1\" && exec 8>lock && flock 8 && \
                  ./mount.offsetfs source mnt 9>&1 | timeout 20 cat; \
                  exec 8>&- && flock -n lock true";
    let done = sh(script, &[place.home.path()]);
    assert_eq!(code(&done), 0, "{}", told(&done));
    assert_eq!(read(place.at.join("t-0/by-offset/5")), "v5");
    place.unmounts();
}

/// The daemon leaves its directory, so what was typed must not depend on it.
#[test]
fn helper_takes_relative_paths() {
    needs_fuse!();
    let place = Place::new();
    let done = sh("cd \"$1\" && ./mount.offsetfs source mnt", &[place.home.path()]);
    assert_eq!(code(&done), 0, "{}", told(&done));
    assert_eq!(read(place.at.join("t-0/by-offset/5")), "v5");
    place.unmounts();
}

/// 1.1: "mount(8) always passes `rw`, so in these forms `rw`, `dev`, `suid`, `exec` are accepted
/// and change nothing"
#[test]
fn words_and_letters_of_mount_change_nothing() {
    needs_fuse!();
    let place = Place::new();
    let fstab = "rw,dev,suid,exec,nofail,_netdev,noauto,user,x-systemd.automount,X-mount.mkdir";
    for words in [
        &["-o", fstab][..],
        &["-o", "user=nobody", "-n"],
        &["-w"],
        &["-r"],
        &["-s", "-o", "frob,rw"],
        &["-t", "offsetfs"],
    ] {
        place.mounts(HELPER, words);
        let flags = place.flags();
        for flag in ["ro", "nosuid", "nodev", "noexec"] {
            assert!(flags.iter().any(|given| given == flag), "{words:?}: {flags:?}");
        }
        assert_eq!(error_of(fs::create_dir(place.at.join("x-0"))), "EROFS");
        place.unmounts();
    }
}

/// 1.1: "writable there is `-o write`."
#[test]
fn write_makes_it_writable() {
    needs_fuse!();
    let place = Place::new();
    for (name, shown) in [(HELPER, "100"), ("offsetfs", "101")] {
        place.mounts(name, &["-o", "rw,noexec,write"]);
        assert!(place.flags().contains(&"rw".to_owned()));
        sh_ok("echo hello >> \"$1\"/t-0/append", &[&place.at]);
        assert_eq!(read(place.at.join("t-0/by-offset").join(shown)), "hello");
        place.unmounts();
    }
}

#[test]
fn fake_checks_and_mounts_nothing() {
    let place = Place::new();
    let before = snapshot(&place.source);
    let done = place.call(HELPER, &["-f", "-o", "rw,write"]);
    assert_eq!(code(&done), 0, "{}", told(&done));
    assert!(!is_mounted(&place.at));
    assert!(before == snapshot(&place.source), "nothing is locked");
    fs::write(place.at.join("file"), "in the way").unwrap();
    assert_eq!(code(&place.call(HELPER, &["-f"])), 32);
}

#[test]
fn verbose_says_what_was_mounted() {
    needs_fuse!();
    let place = Place::new();
    let said = err(&place.mounts(HELPER, &["-v"]));
    let expected = format!("{} mounted on {}", place.source.display(), place.at.display());
    assert!(said.contains(&expected), "{said}");
    place.unmounts();
}

/// 7.1: "Exit: 0 ok, 1 runtime error, 2 usage"; mount(8) has codes of its own for its helpers.
#[test]
fn refusals_have_the_codes_that_the_caller_knows() {
    let place = Place::new();
    let refused = |name, words: &[&str], expected, word: &str| {
        let done = place.call(name, words);
        assert_eq!(code(&done), expected, "{name} {words:?}: {}", told(&done));
        assert!(err(&done).contains(word), "{}", told(&done));
        assert!(done.stdout.is_empty() && !is_mounted(&place.at));
    };
    for (name, usage) in [(HELPER, 1), ("offsetfs", 2)] {
        refused(name, &["-o", "rw,frob"], usage, "'frob'");
        refused(name, &["-r", "-o", "write"], usage, "either ro or writable");
        refused(name, &["-o", "remount,ro"], usage, "unmount it");
        refused(name, &["third"], usage, "third");
    }
    fs::write(place.at.join("file"), "in the way").unwrap();
    let at = place.at.to_str().unwrap();
    refused(HELPER, &[], 32, at);
    refused("offsetfs", &[], 1, at);
}

/// What fails only in the process that serves is told by the one that was called.
#[test]
fn failure_of_the_daemon_is_passed_on() {
    needs_fuse!();
    let place = Place::new();
    let _writer = mount(&place.source).args(&["--rw"]).live_source().start();
    for (name, expected) in [(HELPER, 32), ("offsetfs", 1)] {
        let done = place.call(name, &["-o", "write"]);
        assert_eq!(code(&done), expected, "{}", told(&done));
        assert!(err(&done).contains(place.source.to_str().unwrap()), "{}", told(&done));
        assert!(!is_mounted(&place.at));
    }
}

/// Runs a script as root of a mount namespace of its own, so that /sbin and /dev can be covered for
/// it alone; `None` where that is not allowed.
fn in_namespace(script: &str, args: &[&Path]) -> Option<Output> {
    let allowed = is_root() && sh("unshare -m true", &[""; 0]).status.success();
    if !allowed {
        skipped("only root can make a mount namespace");
        return None;
    }
    let script = format!("trap 'umount -ql \"$2\" || true' EXIT; set -eu\n{script}");
    let mut all = vec![Path::new("unshare"), Path::new("-m"), Path::new("bash")];
    all.extend([Path::new("-c"), Path::new(&script), Path::new("bash")]);
    all.extend(args);
    Some(sh("\"$@\"", &all))
}

fn install(root: &Path, words: &[&str]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("mount-scripts/install.sh");
    let mut all = vec![root.to_path_buf(), script];
    all.extend(words.iter().map(PathBuf::from));
    sh("DESTDIR=$1 PREFIX=/usr sh \"${@:2}\"", &all)
}

/// 1.1: "The mount(8) helper `mount.offsetfs` (types `offsetfs` and `fuse.offsetfs`)"
#[test]
fn mount_finds_the_helper_for_both_types_and_in_fstab() {
    needs_fuse!();
    let place = Place::new();
    let root = place.home.path().join("root");
    let done = install(&root, &[OFFSETFS]);
    assert_eq!(code(&done), 0, "{}", told(&done));
    let fstab = place.home.path().join("fstab");
    let (source, at) = (place.source.display(), place.at.display());
    let line = format!("{source} {at} offsetfs nofail,x-systemd.automount 0 0\n");
    fs::write(&fstab, line).unwrap();
    let script = r#"
        cp -a /sbin/mount.fuse* "$3/sbin/" || echo "skipped: no mount.fuse" >&2
        mount --bind "$3/sbin" /sbin
        # mount(8) gives its helpers a PATH of its own.
        mount --bind "$3/usr/bin" /usr/local/bin
        export PATH=/usr/local/bin:$PATH XDG_CACHE_HOME=$3/cache
        shown() { cat "$2/t-0/by-offset/5"; echo " $3"; offsetfs umount "$2"; }
        mount -t offsetfs "$1" "$2"; shown "$1" "$2" offsetfs
        mount -T "$4" --all; shown "$1" "$2" fstab
        mount -T "$4" -o write "$2"; echo hello >> "$2/t-0/append"; shown "$1" "$2" write
        if mount -t offsetfs -o frob "$1" "$2"; then exit 9; else echo "frob $?"; fi
        if mount -t offsetfs /none "$2"; then exit 9; else echo "none $?"; fi
        [ ! -e /sbin/mount.fuse ] || { mount -t fuse.offsetfs "$1" "$2"; shown "$1" "$2" fuse; }
    "#;
    let Some(done) = in_namespace(script, &[&place.source, &place.at, &root, &fstab]) else {
        return;
    };
    let mut expected = "v5 offsetfs\nv5 fstab\nv5 write\nfrob 1\nnone 32\n".to_owned();
    if !err(&done).contains("no mount.fuse") {
        expected.push_str("v5 fuse\n");
    }
    assert_eq!(out(&done), expected, "{}", told(&done));
    assert_eq!(code(&done), 0, "{}", told(&done));
    assert!(err(&done).contains("'frob'") && err(&done).contains("/none"), "{}", told(&done));
}

/// Files below a directory.
fn files(root: &Path) -> Vec<String> {
    let found = sh_ok("cd \"$1\" && find . ! -type d | sort", &[root]);
    String::from_utf8(found).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn installer_takes_away_what_it_put() {
    let home = scratch();
    let root = home.path();
    let done = install(root, &[OFFSETFS]);
    assert_eq!((code(&done), out(&done), err(&done)), (0, String::new(), String::new()));
    let put = files(root);
    for file in [
        "./sbin/mount.offsetfs",
        "./usr/bin/offsetfs",
        "./etc/systemd/system/offsetfs@.service",
        "./usr/share/man/man1/offsetfs.1",
        "./usr/share/man/man1/offsetfs-mount.1",
        "./usr/share/bash-completion/completions/offsetfs",
        "./usr/share/zsh/site-functions/_offsetfs",
        "./usr/share/fish/vendor_completions.d/offsetfs.fish",
    ] {
        assert!(put.iter().any(|found| found == file), "{file} is missing: {put:?}");
    }
    sh_ok("cd \"$1\" && ! find . -type f -empty | grep .", &[root]);
    sh_ok("\"$1\"/usr/bin/offsetfs --version", &[root]);
    assert_eq!(code(&install(root, &[OFFSETFS])), 0, "again, over itself");
    assert_eq!(code(&install(root, &["--uninstall"])), 0);
    assert_eq!(files(root), [""; 0]);
}

#[test]
fn service_names_the_program_where_it_was_put() {
    let home = scratch();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("mount-scripts/install.sh");
    let put = "DESTDIR=$1 PREFIX=/opt/kafka-tools sh \"$2\" \"$3\"";
    sh_ok(put, &[home.path(), &script, Path::new(OFFSETFS)]);
    let unit = fs::read_to_string(home.path().join("etc/systemd/system/offsetfs@.service"));
    assert!(unit.unwrap().contains("\nExecStart=/opt/kafka-tools/bin/offsetfs mount "));
    assert!(home.path().join("opt/kafka-tools/bin/offsetfs").exists());
}

#[test]
fn installer_refuses_what_it_cannot_do() {
    let home = scratch();
    let missing = install(home.path(), &["/no/such/program"]);
    assert_eq!(code(&missing), 1, "{}", told(&missing));
    assert!(err(&missing).contains("/no/such/program"), "{}", told(&missing));
    for words in [&["--frob"][..], &[OFFSETFS, OFFSETFS], &["--uninstall", "now"]] {
        let refused = install(home.path(), words);
        assert_eq!(code(&refused), 2, "{words:?} {}", told(&refused));
        assert!(err(&refused).starts_with("usage: "), "{}", told(&refused));
    }
    assert_eq!(files(home.path()), [""; 0]);
}

#[test]
fn scripts_are_sound_for_a_plain_shell() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("mount-scripts");
    sh_ok(
        "cd \"$1\" && for it in install.sh mount.offsetfs; do sh -n $it || exit; done",
        &[scripts],
    );
}

#[test]
fn helper_script_says_when_there_is_no_program() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("mount-scripts/mount.offsetfs");
    let done = sh("sh=$(command -v sh); PATH=/nowhere \"$sh\" \"$1\" source at", &[script]);
    if !Path::new("/usr/local/bin/offsetfs").exists() {
        assert_eq!(code(&done), 2, "{}", told(&done));
        assert!(err(&done).contains("cannot find offsetfs in /nowhere"), "{}", told(&done));
    }
}

/// 7: each command of the list has a page.
#[test]
fn every_command_has_a_manual_page() {
    let home = scratch();
    sh_ok("\"$1\" man \"$2\"", &[Path::new(OFFSETFS), home.path()]);
    let help = String::from_utf8(sh_ok("\"$1\" --help", &[OFFSETFS])).unwrap();
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let mut expected: Vec<String> = commands
        .filter_map(|line| line.split_whitespace().next())
        .filter(|command| *command != "help")
        .map(|command| format!("offsetfs-{command}.1"))
        .collect();
    expected.push("offsetfs.1".to_owned());
    expected.sort();
    assert!(expected.len() > 10, "{help}");
    assert_eq!(names(home.path()), expected);
    for name in expected {
        let page = fs::read_to_string(home.path().join(&name)).unwrap();
        assert!(page.contains(".TH ") && page.contains(".SH DESCRIPTION"), "{name}: {page}");
    }
}

#[test]
fn bash_completes_commands_and_options() {
    let script = r#"
        set -e
        source <("$1" completions bash)
        complete -p offsetfs
        COMP_WORDS=(offsetfs um) COMP_CWORD=1
        _offsetfs offsetfs um offsetfs
        echo "${COMPREPLY[@]}"
        COMP_WORDS=(offsetfs mount --cac) COMP_CWORD=2
        _offsetfs offsetfs --cac mount
        echo "${COMPREPLY[@]}"
    "#;
    let done = sh(script, &[OFFSETFS]);
    assert_eq!((code(&done), err(&done)), (0, String::new()));
    let said = out(&done);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].contains("_offsetfs"), "{said}");
    assert_eq!(lines[1..], ["umount", "--cache-dir"]);
}

/// Nobody reads stderr any more: what is found later must be found in the system's log.
#[test]
fn messages_after_detaching_go_to_the_system_log() {
    needs_fuse!();
    let place = Place::new();
    let segment = place.source.join("t-0/00000000000000000000.log");
    let mut bytes = fs::read(&segment).unwrap();
    bytes[100] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let dev = place.home.path().join("dev");
    fs::create_dir(&dev).unwrap();
    let log = UnixDatagram::bind(dev.join("log")).unwrap();
    log.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let script = r#"
        for device in fuse null; do
          touch "$3/$device"; mount --bind "/dev/$device" "$3/$device"
        done
        mount --rbind "$3" /dev
        XDG_CACHE_HOME=$3/cache "$4" "$1" "$2"
        cat "$2/t-0/by-offset/0" || echo EIO
        "$4" umount "$2"
    "#;
    let helper = Path::new(OFFSETFS);
    let Some(done) = in_namespace(script, &[&place.source, &place.at, &dev, helper]) else {
        return;
    };
    assert_eq!((code(&done), out(&done)), (0, "EIO\n".to_owned()), "{}", told(&done));
    let mut message = [0; 4096];
    let size = log.recv(&mut message).expect("a message");
    let message = String::from_utf8_lossy(&message[..size]);
    assert!(message.contains("offsetfs[") && message.contains("t-0"), "{message}");
    assert!(!err(&done).contains("position"), "{}", told(&done));
}
