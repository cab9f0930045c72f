"""Generated messages and stubs of the contract."""
