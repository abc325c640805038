//! Runs the null server until it is killed: `null_server [ADDRESS] [auto|uring|epoll] [THREADS]`.

use tierstone_server::{DriverKind, ListenAddress, TransportSettings, null};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let driver = match arguments.next().as_deref() {
        None | Some("auto") => DriverKind::Auto,
        Some("uring") => DriverKind::Uring,
        Some("epoll") => DriverKind::Epoll,
        Some(other) => return Err(format!("'{other}' is no driver: auto, uring or epoll").into()),
    };
    let threads = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let settings = TransportSettings { driver, ..TransportSettings::default() };
    let server =
        null::run(&[ListenAddress::Tcp(address.parse()?)], &settings, threads, &null::NullService::new(128))?;
    for address in &server.addresses {
        println!("listening on {address}");
    }
    for driver in server.drivers {
        println!("{:?}", driver.kind());
        driver.join()?;
    }
    Ok(())
}
