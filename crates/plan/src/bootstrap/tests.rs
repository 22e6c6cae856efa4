//! What a server is given, seen as the server sees it.

use super::*;
