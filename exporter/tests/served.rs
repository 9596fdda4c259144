//! The server over real sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use gpushare_exporter::http::{Answer, Ask, serve};

/// A server that answers with what it was asked.
fn server() -> SocketAddr {
    serves(|ask| match ask.path.as_str() {
        "/there" => Answer::plain(200, &ask.accept),
        _ => Answer::plain(404, "no"),
    })
}

/// A server that answers so.
fn serves(answer: impl Fn(&Ask) -> Answer + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || serve(&listener, answer));
    at
}

/// Sends this, piece by piece, and reads to the end.
fn talk(at: SocketAddr, pieces: &[&str]) -> String {
    let mut socket = TcpStream::connect(at).expect("it listens");
    socket
        .set_read_timeout(Some(Duration::from_secs(30)))
        .expect("a timeout");
    for piece in pieces {
        socket.write_all(piece.as_bytes()).expect("it reads");
    }
    let mut text = String::new();
    // A server that has refused the head may reset what it has not read.
    let _ = socket.read_to_string(&mut text);
    text
}

#[test]
fn a_get_is_answered_with_its_length_and_the_connection_ends() {
    let text = talk(
        server(),
        &["GET /the", "re HTTP/1.1\r\nAccept: a/b\r", "\n\r\n"],
    );
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(text.contains("\r\nContent-Length: 4\r\n"), "{text}");
    assert!(text.contains("\r\nConnection: close\r\n"), "{text}");
    assert!(text.ends_with("\r\n\r\na/b\n"), "{text}");
}

#[test]
fn a_head_has_the_length_and_no_body() {
    let text = talk(server(), &["HEAD /there HTTP/1.1\r\nAccept: a/b\r\n\r\n"]);
    assert!(text.contains("Content-Length: 4\r\n"), "{text}");
    assert!(text.ends_with("\r\n\r\n"), "{text}");
}

#[test]
fn what_is_not_there_or_not_allowed_is_said_by_status() {
    let at = server();
    for (request, status) in [
        ("GET /other HTTP/1.1\r\n\r\n", "404"),
        ("POST /there HTTP/1.1\r\n\r\n", "405"),
        ("nonsense\r\n\r\n", "400"),
    ] {
        let text = talk(at, &[request]);
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
    }
    // It serves on.
    let text = talk(at, &["GET /there HTTP/1.0\r\n\r\n"]);
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
}

#[test]
fn a_head_without_end_is_refused_at_a_bound() {
    let long = format!("GET /there HTTP/1.1\r\nX: {}", "x".repeat(9 << 10));
    let text = talk(server(), &[&long]);
    assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
}

#[test]
fn silent_clients_however_many_do_not_keep_others_out() {
    let at = server();
    let silent = |_| TcpStream::connect(at).expect("it listens");
    let silent: Vec<TcpStream> = (0..128).map(silent).collect();
    let text = talk(at, &["GET /there HTTP/1.1\r\n\r\n"]);
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    // The oldest had to go, and no more than that.
    let ended = |mut socket: &TcpStream| {
        socket.set_nonblocking(true).expect("a socket");
        !matches!(socket.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    };
    let ends: Vec<bool> = silent.iter().map(ended).collect();
    assert!(ends[0] && !ends[127], "{ends:?}");
}

#[test]
fn a_client_that_has_asked_is_not_closed_for_a_newer_one() {
    let (go, wait) = channel();
    let (says, asked) = channel();
    let ends = Mutex::new((says, wait));
    let at = serves(move |_| {
        let ends = ends.lock().expect("one asks at a time");
        ends.0.send(()).expect("the test waits");
        ends.1.recv().expect("the test goes on");
        Answer::plain(200, "late")
    });
    let mut client = TcpStream::connect(at).expect("it listens");
    client
        .write_all(b"GET / HTTP/1.1\r\n\r\n")
        .expect("it reads");
    asked.recv().expect("it is asked");
    let silent = |_| TcpStream::connect(at).expect("it listens");
    let silent: Vec<TcpStream> = (0..128).map(silent).collect();
    let mut oldest = silent.first().expect("there are some");
    let ended = oldest.read(&mut [0]);
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    go.send(()).expect("it waits");
    let mut text = String::new();
    client.read_to_string(&mut text).expect("it is answered");
    assert!(text.ends_with("\r\n\r\nlate\n"), "{text}");
}

#[test]
fn a_scrape_is_answered_beside_any_number_of_other_requests() {
    let (go, wait) = channel::<()>();
    let (says, asked) = channel();
    let (says, wait) = (Mutex::new(says), Mutex::new(wait));
    let at = serves(move |ask| {
        if ask.path == "/" {
            says.lock().expect("a sender").send(()).expect("it waits");
            let _ = wait.lock().expect("one waits for the end").recv();
        }
        Answer::plain(200, &ask.path)
    });
    let asks = |_| {
        let mut client = TcpStream::connect(at).expect("it listens");
        let head = b"GET / HTTP/1.1\r\n\r\n";
        client.write_all(head).expect("it reads");
        client
    };
    let clients: Vec<TcpStream> = (0..16).map(asks).collect();
    for _ in &clients {
        asked.recv().expect("it is asked");
    }
    // A further one is refused, as long as they are not answered.
    for _ in 0..4 {
        assert_eq!(talk(at, &["GET / HTTP/1.1\r\n\r\n"]), "");
    }
    let text = talk(at, &["GET /metrics HTTP/1.1\r\n\r\n"]);
    assert!(text.ends_with("\r\n\r\n/metrics\n"), "{text}");
    drop(go);
    for mut client in clients {
        let mut text = String::new();
        client.read_to_string(&mut text).expect("it is answered");
        assert!(text.ends_with("\r\n\r\n/\n"), "{text}");
    }
}

#[test]
fn health_is_answered_beside_any_number_of_other_requests() {
    let (go, wait) = channel::<()>();
    let (says, asked) = channel();
    let (says, wait) = (Mutex::new(says), Mutex::new(wait));
    let at = serves(move |ask| {
        if ask.path != "/healthz" {
            says.lock().expect("a sender").send(()).expect("it waits");
            let _ = wait.lock().expect("one waits for the end").recv();
        }
        Answer::plain(200, &ask.path)
    });
    let asks = |path: &str| {
        let mut client = TcpStream::connect(at).expect("it listens");
        let head = format!("GET {path} HTTP/1.1\r\n\r\n");
        client.write_all(head.as_bytes()).expect("it reads");
        asked.recv().expect("it is asked");
        client
    };
    let paths = ["/", "/metrics"];
    let clients: Vec<TcpStream> = (0..32).map(|one| asks(paths[one % 2])).collect();
    for _ in 0..4 {
        assert_eq!(talk(at, &["GET / HTTP/1.1\r\n\r\n"]), "");
        let text = talk(at, &["GET /healthz HTTP/1.1\r\n\r\n"]);
        assert!(text.ends_with("\r\n\r\n/healthz\n"), "{text}");
    }
    drop(go);
    drop(clients);
}
