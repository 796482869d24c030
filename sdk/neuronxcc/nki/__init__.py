"""NKI under the vendor's names."""
