package store

import "fmt"

// openReadOnly opens a file that cannot be written, for reads alone: a home on a file system that is mounted read-only,
// because it is a copy or because the kernel has found errors on the disk. Writes are refused, and nothing is changed.
func (d *database) openReadOnly(k kind, readers int) (err error) {
	mode := "mode=ro"
	if sizeOf(d.path+"-wal") == 0 {
		mode += "&immutable=1" // SQLite would make a WAL and an index to read a file in WAL mode
	}
	c, err := dial(d.path, mode+"&_query_only=1", "temp_store=MEMORY", "cell_size_check=ON", "trusted_schema=OFF", "mmap_size=0")
	if err != nil {
		return fmt.Errorf("%w: its file system: %w", ErrReadOnly, err)
	}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	number, err := migrationNumber(c)
	if err != nil {
		return fmt.Errorf("%w: its file system: %w", ErrReadOnly, err)
	}
	steps, err := migrationsOf(k.migrations)
	if err != nil {
		return err
	}
	if number != len(steps) {
		return fmt.Errorf("%w: its file system, and the file must be opened once where it can be written: its migration number is %d, %d is needed",
			ErrReadOnly, number, len(steps))
	}
	if d.readers, err = openReaders(d.path, mode, readers, d.log); err != nil {
		return err
	}
	d.health.set(CondReadOnly, stateReadOnly, "writes are refused: the file system of "+d.path+" is read-only")
	d.log.Error("the file system is read-only: reads only", "path", d.path)
	d.run(c, k, index{})
	return nil
}
