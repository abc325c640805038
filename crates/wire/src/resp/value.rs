//! A reply as a client sees it.

use std::borrow::Cow;

/// One reply of either protocol version.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A simple string (`+`).
    Simple(Vec<u8>),
    /// An error (`-`, `!`): code, space, message.
    Error(Vec<u8>),
    /// An integer (`:`).
    Integer(i64),
    /// A byte string (`$`).
    Bulk(Vec<u8>),
    /// No value (`_`, `$-1`, `*-1`).
    Null,
    /// An array (`*`).
    Array(Vec<Value>),
    /// A truth value (`#`).
    Boolean(bool),
    /// A floating-point number (`,`).
    Double(f64),
    /// An integer of any size (`(`): decimal digits, perhaps after a sign.
    BigNumber(Vec<u8>),
    /// A text for people (`=`).
    Verbatim {
        /// `txt`, `mkd`, …
        format: [u8; 3],
        /// The text without its format.
        text: Vec<u8>,
    },
    /// Keys and values in the order they came (`%`).
    Map(Vec<(Value, Value)>),
    /// A set (`~`), in the order it came.
    Set(Vec<Value>),
    /// A message beside the replies (`>`).
    Push(Vec<Value>),
    /// A value with attributes before it (`|`).
    Attributed {
        /// Names and values of the attributes.
        attributes: Vec<(Value, Value)>,
        /// The reply itself.
        value: Box<Value>,
    },
}

impl Value {
    /// The bytes of any kind of string.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Simple(bytes) | Value::Bulk(bytes) | Value::Verbatim { text: bytes, .. } => Some(bytes),
            _ => None,
        }
    }

    /// The text of an error.
    pub fn error(&self) -> Option<Cow<'_, str>> {
        match self {
            Value::Error(text) => Some(String::from_utf8_lossy(text)),
            _ => None,
        }
    }

    /// Whether this is an error.
    pub fn is_error(&self) -> bool {
        matches!(self, Value::Error(_))
    }

    /// Whether this is no value.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The integer.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Value::Integer(value) => Some(*value),
            _ => None,
        }
    }

    /// The elements of an array, a set or a push.
    pub fn items(&self) -> Option<&[Value]> {
        match self {
            Value::Array(items) | Value::Set(items) | Value::Push(items) => Some(items),
            _ => None,
        }
    }

    /// Whether this is the answer `OK`.
    pub fn is_ok(&self) -> bool {
        matches!(self, Value::Simple(text) if text == b"OK")
    }
}
