package command

import "github.com/spf13/cobra"

func helpEnvironment() *cobra.Command {
	return &cobra.Command{
		Use:   "environment",
		Short: "The environment variables of locker",
		Long: `Read by locker:

  LOCKER_URL       URL of the store, where --url is not given; locker console takes
                   several, separated by blanks
  LOCKER_URL_FILE  a file that holds the URL, where neither is given
  XDG_STATE_HOME   folder of the default store, locker/locks.db (default
                   ~/.local/state), where none of these is given
  LOCKER_CONSOLE_TOKEN  the token that locker console asks for, where --token-file is
                   not given
  LOCKER_CONSOLE_READ_TOKEN  the one with which people only look at the console, where
                   --read-token-file is not given
  NO_COLOR         if it is set to anything, output has no colours
  TERM             if it is "dumb", there are no colours, either

Set by locker run and locker elect for their command: locker help run.

URLs:

  redis://[user:password@]host:port[/db]    etcd://host:2379,host:2379
  consul://host:8500                        zookeeper://host:2181/chroot
  postgres://user:password@host/db          mysql://user:password@host:3306/db
  sqlite:///path/to/locks.db                redlock://host1,host2,host3
  memcached://host1,host2                   nats://host1,host2,host3
  dynamodb://table?region=eu-west-1`,
	}
}
