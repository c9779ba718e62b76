//! Files of other tools, in the formats that released versions write. One reader a format.
