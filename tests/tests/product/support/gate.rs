//! A door in front of a service: while it is closed, nobody reaches the service.

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards connections to a service as long as it is open. Ends when it is dropped.
pub struct Gate {
    /// Where clients connect.
    pub url: String,
    open: watch::Sender<bool>,
}

impl Gate {
    /// An open gate in front of the service at `url`, which must be `http://<address>:<port>`.
    pub async fn before(url: &str) -> Self {
        let target = url.strip_prefix("http://").unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (open, state) = watch::channel(true);
        tokio::spawn(forward(listener, target, state));
        Self { url, open }
    }

    /// Ends all connections and takes no new ones.
    pub fn close(&self) {
        self.open.send_replace(false);
    }

    /// Takes connections again.
    pub fn open(&self) {
        self.open.send_replace(true);
    }
}

async fn forward(listener: TcpListener, target: String, mut state: watch::Receiver<bool>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            changed = state.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        let Ok((mut client, _)) = accepted else {
            return;
        };
        if !*state.borrow() {
            continue;
        }
        let (target, mut state) = (target.clone(), state.clone());
        tokio::spawn(async move {
            let mut service = TcpStream::connect(target).await.unwrap();
            tokio::select! {
                _ = copy_bidirectional(&mut client, &mut service) => {}
                _ = state.wait_for(|open| !open) => {}
            }
        });
    }
}
