//! A column in Parquet's form: a list of the values without the nulls, and for each row whether it has a value.

use crate::Key;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::errors::Result;
use parquet::file::writer::SerializedColumnWriter;
use parquet::schema::types::{Type, TypePtr};
use std::sync::Arc;

/// A column of a Parquet table, or some rows of it.
pub struct Column {
    name: String,
    values: Values,
    /// One entry per row of the column: 1 if the row has a value, 0 if it is null.
    present: Vec<i16>,
}

/// The values of the rows that have a value. Parquet stores unsigned counts as signed integers with the same bits; the
/// schema says that the counts are unsigned.
pub enum Values {
    /// Yes or no.
    Flag(Vec<bool>),
    /// Counts of 32 bits.
    Small(Vec<i32>),
    /// Counts of 64 bits.
    Long(Vec<i64>),
    Real(Vec<f64>),
    Text(Vec<ByteArray>),
}

/// A type of values that a column of a Parquet table can have.
pub trait Value {
    /// The type in which Parquet stores a value of the implementing type.
    type Stored;

    /// The value in the type in which Parquet stores it; `None` stands for null.
    fn stored(self) -> Option<Self::Stored>;

    /// Wraps stored values in the enum variant of [`Values`] that belongs to the implementing type.
    fn values(values: Vec<Self::Stored>) -> Values;
}

pub fn column<V: Value>(name: &str, rows: impl IntoIterator<Item = V>) -> Column {
    let rows = rows.into_iter();
    let n = rows.size_hint().0;
    let (mut values, mut present) = (Vec::with_capacity(n), Vec::with_capacity(n));
    for value in rows.map(V::stored) {
        present.push(i16::from(value.is_some()));
        values.extend(value);
    }
    Column { name: name.to_owned(), values: V::values(values), present }
}

/// For each row a text that `text` reads from the key of the row's run. Neighbouring rows with one key share the bytes
/// of the text.
pub(super) fn texts<'a>(keys: &[&'a Key], text: impl Fn(&'a Key) -> &'a str) -> Vec<ByteArray> {
    let cells = keys.chunk_by(|a, b| std::ptr::eq(*a, *b));
    cells.flat_map(|rows| std::iter::repeat_n(ByteArray::from(text(rows[0])), rows.len())).collect()
}

impl Column {
    pub(super) fn rows(&self) -> usize {
        self.present.len()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_text(&self) -> bool {
        matches!(self.values, Values::Text(_))
    }

    /// The column's entry in the file's schema. The schema allows nulls in every column.
    pub(super) fn field(&self) -> Result<TypePtr> {
        let (physical, logical) = match &self.values {
            Values::Flag(_) => (Physical::BOOLEAN, None),
            Values::Small(_) => (Physical::INT32, Some(LogicalType::integer(32, false))),
            Values::Long(_) => (Physical::INT64, Some(LogicalType::integer(64, false))),
            Values::Real(_) => (Physical::DOUBLE, None),
            Values::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let field = Type::primitive_type_builder(&self.name, physical);
        field.with_repetition(Repetition::OPTIONAL).with_logical_type(logical).build().map(Arc::new)
    }

    /// A column with the name and type of this column, but without rows.
    pub(super) fn without_rows(&self) -> Column {
        let values = match &self.values {
            Values::Flag(_) => Values::Flag(Vec::new()),
            Values::Small(_) => Values::Small(Vec::new()),
            Values::Long(_) => Values::Long(Vec::new()),
            Values::Real(_) => Values::Real(Vec::new()),
            Values::Text(_) => Values::Text(Vec::new()),
        };
        Column { name: self.name.clone(), values, present: Vec::new() }
    }

    /// Appends the rows of `more`, which must have the same name and type.
    pub(super) fn append(&mut self, mut more: Column) {
        match (&mut self.values, &mut more.values) {
            (Values::Flag(these), Values::Flag(more)) => these.append(more),
            (Values::Small(these), Values::Small(more)) => these.append(more),
            (Values::Long(these), Values::Long(more)) => these.append(more),
            (Values::Real(these), Values::Real(more)) => these.append(more),
            (Values::Text(these), Values::Text(more)) => these.append(more),
            _ => unreachable!("the rows of column {} have one type", self.name),
        }
        self.present.append(&mut more.present);
    }

    /// Removes all rows but keeps the allocated memory.
    pub(super) fn clear(&mut self) {
        match &mut self.values {
            Values::Flag(values) => values.clear(),
            Values::Small(values) => values.clear(),
            Values::Long(values) => values.clear(),
            Values::Real(values) => values.clear(),
            Values::Text(values) => values.clear(),
        }
        self.present.clear();
    }

    /// Writes all rows to `to` and closes the column in the file.
    pub(super) fn write(&self, mut to: SerializedColumnWriter<'_>) -> Result<()> {
        let present = Some(self.present.as_slice());
        match &self.values {
            Values::Flag(values) => to.typed::<BoolType>().write_batch(values, present, None),
            Values::Small(values) => to.typed::<Int32Type>().write_batch(values, present, None),
            Values::Long(values) => to.typed::<Int64Type>().write_batch(values, present, None),
            Values::Real(values) => to.typed::<DoubleType>().write_batch(values, present, None),
            Values::Text(values) => to.typed::<ByteArrayType>().write_batch(values, present, None),
        }?;
        to.close()
    }
}

/// A type of values, the type in which Parquet stores it, the variant of [`Values`], and the conversion.
macro_rules! value {
    ($type:ty, $stored:ty, $variant:ident, $convert:expr) => {
        impl Value for $type {
            type Stored = $stored;

            fn stored(self) -> Option<$stored> {
                Some($convert(self))
            }

            fn values(values: Vec<$stored>) -> Values {
                Values::$variant(values)
            }
        }
    };
}

value!(bool, bool, Flag, std::convert::identity);
value!(u32, i32, Small, u32::cast_signed);
value!(u64, i64, Long, u64::cast_signed);
value!(f64, f64, Real, std::convert::identity);
value!(ByteArray, ByteArray, Text, std::convert::identity);
value!(&str, ByteArray, Text, ByteArray::from);

impl<V: Value> Value for Option<V> {
    type Stored = V::Stored;

    fn stored(self) -> Option<V::Stored> {
        self.and_then(V::stored)
    }

    fn values(values: Vec<V::Stored>) -> Values {
        V::values(values)
    }
}
