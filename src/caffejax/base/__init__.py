"""What every room uses: errors, configuration values, paths, atomic files, tables. Imports nothing of the package."""
