//! The arguments of one request, borrowed from wherever they lie.

use crate::bundle::Bundled;
use crate::upload::Staged;
use tierstone_base::Position;
use tierstone_wire::resp::Request;

/// The arguments of one request, the command's name first. Cheap to copy.
#[derive(Clone, Copy, Debug)]
pub enum Args<'a> {
    /// In the input buffer of a connection.
    Request(Request<'a>),
    /// The same, with the position that the first argument has as a key ([`crate::Executor::prefetch`]).
    Located(Request<'a>, Position),
    /// Kept while the command waits.
    Owned(&'a OwnedArgs),
    /// In what another shard has sent.
    Bundled(Bundled<'a>),
    /// Anywhere.
    Slices(&'a [&'a [u8]]),
}

impl<'a> Args<'a> {
    /// How many there are, the command's name included.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Args::Request(request) | Args::Located(request, _) => request.len(),
            Args::Owned(owned) => owned.ends.len(),
            Args::Bundled(bundled) => bundled.len(),
            Args::Slices(slices) => slices.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Argument `index`, if there is one.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        match self {
            Args::Request(request) | Args::Located(request, _) => request.get(index),
            Args::Owned(owned) => owned.get(index),
            Args::Bundled(bundled) => bundled.get(index),
            Args::Slices(slices) => slices.get(index).copied(),
        }
    }

    /// Argument `index`, or nothing beyond the last: for places whose arity has been checked.
    #[inline]
    pub fn at(&self, index: usize) -> &'a [u8] {
        self.get(index).unwrap_or_default()
    }

    /// Argument `index`, if it was uploaded: its bytes are not among the arguments then.
    #[inline]
    pub fn staged(&self, index: usize) -> Option<&'a Staged> {
        match self {
            Args::Owned(owned) => owned.staged.iter().find(|(at, _)| *at == index).map(|(_, staged)| staged),
            Args::Request(_) | Args::Located(..) | Args::Bundled(_) | Args::Slices(_) => None,
        }
    }

    /// The position of the first argument as a key, if it is known already.
    #[inline]
    pub fn position(&self) -> Option<Position> {
        match self {
            Args::Located(_, position) => Some(*position),
            Args::Request(_) | Args::Owned(_) | Args::Bundled(_) | Args::Slices(_) => None,
        }
    }

    /// Whether any argument was uploaded.
    #[inline]
    pub fn has_staged(&self) -> bool {
        matches!(self, Args::Owned(owned) if !owned.staged.is_empty())
    }

    /// Bytes of the arguments.
    pub fn size_bytes(&self) -> usize {
        self.from(0).map(<[u8]>::len).sum()
    }

    /// The arguments from `first` on.
    pub fn from(&self, first: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let args = *self;
        (first..self.len().max(first)).map(move |index| args.at(index))
    }

    /// A copy of its own.
    pub fn to_owned(self) -> OwnedArgs {
        if let Args::Owned(owned) = self {
            return owned.clone();
        }
        self.from(0).collect()
    }
}

/// Arguments that outlive the buffer they came in: one allocation for the bytes, one for the ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedArgs {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Arguments that were uploaded, by their indexes; empty among the others.
    staged: Vec<(usize, Staged)>,
}

impl OwnedArgs {
    /// Argument `index`, if there is one.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        self.bytes.get(start..end)
    }

    /// Adds arguments behind the others.
    pub fn extend<'a>(&mut self, arguments: impl IntoIterator<Item = &'a [u8]>) {
        for argument in arguments {
            self.bytes.extend_from_slice(argument);
            self.ends.push(self.bytes.len());
        }
    }

    /// Takes back what was added behind the first `count` arguments, none of which was uploaded.
    pub fn truncate(&mut self, count: usize) {
        if count < self.ends.len() {
            self.ends.truncate(count);
            self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Adds an argument that was uploaded.
    pub fn push_staged(&mut self, staged: Staged) {
        self.staged.push((self.ends.len(), staged));
        self.ends.push(self.bytes.len());
    }

    /// The arguments that were uploaded, with their indexes.
    pub fn all_staged(&self) -> &[(usize, Staged)] {
        &self.staged
    }

    /// These arguments, borrowed.
    pub fn args(&self) -> Args<'_> {
        Args::Owned(self)
    }

    /// Bytes that they take.
    pub fn size_bytes(&self) -> usize {
        let staged = self.staged.len() * size_of::<(usize, Staged)>();
        self.bytes.len() + self.ends.len() * size_of::<usize>() + staged
    }
}

impl<'a> FromIterator<&'a [u8]> for OwnedArgs {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(arguments: I) -> Self {
        let mut owned = OwnedArgs::default();
        owned.extend(arguments);
        owned
    }
}
