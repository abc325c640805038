//! Certificates of tests: who signs them, as files of a folder.

use super::Folder;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// Who signs certificates, and what it has signed, as files of a folder.
pub struct Authority<'a> {
    pub folder: &'a Folder,
    pub name: &'static str,
    issuer: Issuer<'static, KeyPair>,
}

impl<'a> Authority<'a> {
    /// Its own certificate is the file `NAME.pem`.
    pub fn new(folder: &'a Folder, name: &'static str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, format!("authority {name}"));
        let certificate = params.self_signed(&key).expect("it signs itself");
        std::fs::write(folder.path(&format!("{name}.pem")), certificate.pem()).expect("it is written");
        Authority { folder, name, issuer: Issuer::new(params, key) }
    }

    /// Signs a certificate for this machine: the files `NAME.pem` and `NAME.key`.
    pub fn sign(&self, name: &str) {
        let key = KeyPair::generate().expect("a key");
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, name);
        let text = params.signed_by(&key, &self.issuer).expect("it is signed").pem();
        std::fs::write(self.folder.path(&format!("{name}.pem")), text).expect("it is written");
        std::fs::write(self.folder.path(&format!("{name}.key")), key.serialize_pem()).expect("it is written");
    }
}
