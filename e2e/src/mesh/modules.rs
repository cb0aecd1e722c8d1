//! The web server that agents fetch the filter's module from.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use sha2::{Digest as _, Sha256};

use crate::Failure;
use crate::message::Message;

/// A running server; it stops with the process.
#[derive(Debug)]
pub struct Modules {
    address: SocketAddr,
    shelf: Arc<Mutex<Shelf>>,
}

#[derive(Debug, Default)]
struct Shelf {
    modules: BTreeMap<String, Vec<u8>>,
    /// How often each module was requested, also if it does not exist.
    asked: BTreeMap<String, usize>,
}

impl Modules {
    /// Starts it on a free port, without modules.
    ///
    /// # Errors
    /// If there is none.
    pub fn start() -> Result<Self, Failure> {
        let failed = "starting the server of modules";
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Failure::of(failed))?;
        let address = listener.local_addr().map_err(Failure::of(failed))?;
        let shelf = Arc::new(Mutex::new(Shelf::default()));
        let served = Arc::clone(&shelf);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let shelf = Arc::clone(&served);
                // The agent reports a broken connection.
                thread::spawn(move || serve(&connection, &shelf));
            }
        });
        Ok(Self { address, shelf })
    }

    /// Adds a module under this name, and returns its SHA-256 in hexadecimal.
    pub fn put(&self, name: &str, module: Vec<u8>) -> String {
        let digest = Sha256::digest(&module);
        let mut shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        shelf.modules.insert(format!("/{name}"), module);
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The URL of a module of this name, whether or not it exists.
    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    /// How often the module of this name was requested.
    pub fn asked_for(&self, name: &str) -> usize {
        let shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        shelf.asked.get(&format!("/{name}")).copied().unwrap_or_default()
    }
}

fn serve(connection: &TcpStream, shelf: &Mutex<Shelf>) -> io::Result<()> {
    let mut reader = BufReader::new(connection.try_clone()?);
    let mut writer = connection.try_clone()?;
    while let Some(request) = Message::read_request(&mut reader)? {
        let path = request.start.split(' ').nth(1).unwrap_or_default().to_owned();
        let module = {
            let mut shelf = shelf.lock().unwrap_or_else(PoisonError::into_inner);
            *shelf.asked.entry(path.clone()).or_default() += 1;
            shelf.modules.get(&path).cloned()
        };
        let (status, body) = module.map_or(("404 Not Found", Vec::new()), |module| ("200 OK", module));
        let length = body.len();
        write!(
            writer,
            "HTTP/1.1 {status}\r\nContent-Type: application/wasm\r\nContent-Length: {length}\r\n\r\n"
        )?;
        writer.write_all(&body)?;
    }
    Ok(())
}
