//! Where the text of a dump goes: into a buffer that is handed on whenever it is worth a write, so
//! that no file, batch or record makes it grow.

/// Bytes that are collected before they are handed on.
const WORTH_A_WRITE: usize = 1 << 20;

/// The text, and who takes it. The taker empties the buffer, and says whether it wants more.
pub struct Out<'a> {
    /// What was not handed on yet.
    pub text: Vec<u8>,
    take: &'a mut dyn FnMut(&mut Vec<u8>) -> bool,
    closed: bool,
}

impl<'a> Out<'a> {
    /// Text for `take`.
    pub fn new(take: &'a mut dyn FnMut(&mut Vec<u8>) -> bool) -> Out<'a> {
        Out { text: Vec::new(), take, closed: false }
    }

    /// Is there so much text that it should be handed on?
    #[inline]
    pub fn is_full(&self) -> bool {
        self.text.len() >= WORTH_A_WRITE
    }

    /// Hands on what is worth it. False when nobody wants more.
    #[inline]
    pub fn go_on(&mut self) -> bool {
        if self.is_full() {
            self.flush();
        }
        !self.closed
    }

    /// Hands on everything.
    pub fn flush(&mut self) {
        self.closed = self.closed || !(self.take)(&mut self.text);
        self.text.clear();
    }
}

impl std::fmt::Debug for Out<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Out({} bytes)", self.text.len())
    }
}
